"""Which passes may be vectorised: those of operations that keep rows apart.

`tf.vectorized_map` writes the pass of one example anew for all of them. It
keeps rows apart only where every operation does so in its vectorised form. Not
all do: a histogram shares one space of indices, so that a bin beyond the last
one is the first bin of the next row; a branch that depends on the example
gathers the rows that take it, and how many there are decides how each of them
is rounded; where examples make values of different shapes, the whole pass ends.
So a pass is known by its operations and their shapes, and by nothing else.
"""

from __future__ import annotations

import re

import tensorflow as tf

from tf_privrob.gradients import endings
from tf_privrob.gradients import places
from tf_privrob.models import operations

_KNOWN = frozenset(
  """
    Abs Acos Acosh Add AddN AddV2 All Any ArgMax ArgMin Asin Asinh Atan Atan2
    Atanh AvgPool AvgPool3D AvgPool3DGrad AvgPoolGrad BatchMatMul BatchMatMulV2
    BatchMatMulV3 BiasAdd BiasAddGrad BroadcastArgs BroadcastGradientArgs
    BroadcastTo Cast Ceil ConcatOffset ConcatV2 Const Conv2D
    Conv2DBackpropFilter Conv2DBackpropInput Conv3D Conv3DBackpropFilterV2
    Conv3DBackpropInputV2 Cos Cosh Cumprod Cumsum DepthwiseConv2dNative
    DepthwiseConv2dNativeBackpropFilter DepthwiseConv2dNativeBackpropInput Div
    DivNoNan Einsum Elu EluGrad EnsureShape Equal Erf Erfc Exp ExpandDims Expm1
    Fill Floor FloorDiv FloorMod GatherV2 Greater GreaterEqual Identity
    IdentityN Inv InvGrad InvertPermutation IsFinite IsInf IsNan L2Loss
    LeakyRelu LeakyReluGrad Less LessEqual Log Log1p LogSoftmax LogicalAnd
    LogicalNot LogicalOr MatMul MatrixBandPart MatrixDiag MatrixDiagPart
    MatrixDiagPartV3 MatrixDiagV3 Max MaxPool MaxPool3D MaxPool3DGrad
    MaxPoolGrad MaxPoolGradV2 MaxPoolV2 Maximum Mean Min Minimum MirrorPad
    MirrorPadGrad Mul MulNoNan Neg NoOp NotEqual OneHot OnesLike Pack Pad PadV2
    PartitionedCall Placeholder Pow PreventGradient Prod Range Rank
    ReadVariableOp RealDiv Reciprocal ReciprocalGrad Relu Relu6 Relu6Grad
    ReluGrad Reshape ResizeBilinear ResizeBilinearGrad ResizeNearestNeighbor
    ResizeNearestNeighborGrad ReverseV2 Rint Round Rsqrt RsqrtGrad ScatterNd
    Select SelectV2 Selu SeluGrad Shape ShapeN Sigmoid SigmoidGrad Sign Sin Sinh
    Size Slice Softmax SoftmaxCrossEntropyWithLogits Softplus SoftplusGrad
    Softsign SoftsignGrad SparseSoftmaxCrossEntropyWithLogits Split SplitV Sqrt
    SqrtGrad Square SquaredDifference Squeeze StatefulPartitionedCall
    StatelessRandomGetAlg StatelessRandomGetKeyCounter StopGradient StridedSlice
    StridedSliceGrad Sub Sum Tan Tanh TanhGrad Tile TopKV2 Transpose TruncateDiv
    TruncateMod Unpack Xdivy Xlog1py Xlogy ZerosLike _EagerConst
  """.split()
)
_HANDLES = (tf.resource, tf.variant)
_DRAWS = re.compile(r"Stateless(Random|TruncatedNormal)\w*")


def unknown(graph: tf.Graph) -> str | None:
  """Names an operation that is not known to keep rows apart, or None.

  Args:
    graph: of the pass of one example, gradients and all.
  """
  for kind, name in operations.all_of(graph):
    if kind not in _KNOWN and not _DRAWS.fullmatch(kind):
      return f"{kind} {name!r}"
  for operation in places.operations_of(graph):
    if operation.type in endings.OF_SHAPES or _of_read_shapes(operation):
      continue
    for tensor in operation.outputs:
      if tensor.dtype in _HANDLES:
        continue
      if not tensor.shape.is_fully_defined():
        return f"{operation.type} {operation.name!r} of open shape"
  return None


def _of_read_shapes(operation: tf.Operation) -> bool:
  """Whether it says which axes were broadcast between two tensors' shapes.

  Where numbers of an example stand in the place of a shape, rows would have
  answers of different lengths.
  """
  return operation.type == "BroadcastGradientArgs" and all(
    map(_made_of_shapes, operation.inputs)
  )


def _made_of_shapes(tensor: tf.Tensor) -> bool:
  """Whether nothing but shapes and constants has a part in it."""
  operation = tensor.op
  if operation.type == "Const" or operation.type in endings.OF_SHAPES:
    return True
  return len(operation.inputs) > 0 and all(
    map(_made_of_shapes, operation.inputs)
  )
