"""Whether what an example is can end a pass, and with it the training.

A look-up beyond the end of its table raises an error. If one example brings
that about, whether the training ends tells of this example, and no noise hides
it. So the graph of the very pass that is run is walked from its inputs on: an
operation may see numbers that were made of an example only where it is known to
answer whatever they are. Sizes, places, divisors of whole numbers, and which of
two branches is taken, must be made of something else. Whatever is not known to
answer may well do so; it is named all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Callable

import tensorflow as tf

# They answer for all numbers, given shapes that fit.
ANSWERING = frozenset(
  """
    Abs Acos Acosh Add AddN AddV2 Asin Asinh Atan Atan2 Atanh AvgPool
    AvgPool3D BatchMatMul BatchMatMulV2 BatchMatMulV3 BiasAdd BiasAddGrad
    Cast Ceil ClipByValue Complex ComplexAbs Conj Const Conv2D Conv3D Cos
    Cosh CudnnRNN CudnnRNNBackprop CudnnRNNBackpropV2 CudnnRNNV2
    DepthToSpace DepthwiseConv2dNative Digamma DivNoNan Einsum Elu EluGrad
    EnsureShape Equal Erf Erfc Exp Expm1 ExtractImagePatches FFT FFT2D FFT3D
    Floor FusedBatchNormGradV3 FusedBatchNormV3 Greater GreaterEqual IFFT
    IFFT2D IFFT3D Identity IdentityN Imag Inv InvGrad IsFinite IsInf IsNan
    L2Loss LRN LRNGrad LeakyRelu LeakyReluGrad Less LessEqual Lgamma Log
    Log1p LogSoftmax LogicalAnd LogicalNot LogicalOr MatMul MatrixDiag
    MatrixDiagPart MaxPool MaxPool3D MaxPool3DGrad MaxPoolGrad Maximum
    Minimum Mul MulNoNan Ndtri Neg NoOp NotEqual Pack Placeholder
    PreventGradient ReadVariableOp Real RealDiv Reciprocal ReciprocalGrad
    Relu Relu6 Relu6Grad ReluGrad ResizeBicubicGrad ResizeBilinearGrad Rint
    Round Rsqrt RsqrtGrad Select SelectV2 Selu SeluGrad Sigmoid SigmoidGrad
    Sign Sin Sinh Softmax SoftmaxCrossEntropyWithLogits Softplus
    SoftplusGrad Softsign SoftsignGrad SpaceToDepth Sqrt SqrtGrad Square
    SquaredDifference Squeeze StopGradient Sub Tan Tanh TanhGrad
    TensorListPushBack Unpack VarHandleOp Xdivy Xlog1py Xlogy _EagerConst
  """.split()
)
# So do these, if the inputs of these numbers are made of something else.
ARGUMENTS: Mapping[str, tuple[int, ...]] = {
  **dict.fromkeys(
    """
      AdjustContrastv2 AdjustHue AdjustSaturation All Any ArgMax ArgMin
      BroadcastTo Cumprod Cumsum CumulativeLogsumexp EuclideanNorm
      ExpandDims GatherNd IRFFT IRFFT2D Max Mean Min MirrorPad MirrorPadGrad
      Pad Prod RFFT RFFT2D Reshape ResizeArea ResizeBicubic ResizeBilinear
      ResizeNearestNeighbor ResizeNearestNeighborGrad ReverseV2 Sum
      TensorListFromTensor TensorListPopBack TensorListStack Tile TopKV2
      Transpose
    """.split(),
    (1,),
  ),
  **dict.fromkeys(
    "AvgPoolGrad AvgPool3DGrad Conv2DBackpropInput Fill Split".split(), (0,)
  ),
  **dict.fromkeys(
    "Conv3DBackpropInputV2 DepthwiseConv2dNativeBackpropInput".split(), (0,)
  ),
  **dict.fromkeys(
    """
      Conv2DBackpropFilter Conv3DBackpropFilterV2
      DepthwiseConv2dNativeBackpropFilter OneHot
    """.split(),
    (1,),
  ),
  **dict.fromkeys(
    """
      BatchToSpaceND GatherV2 MatrixBandPart MaxPoolV2 PadV2 Roll Slice
      SpaceToBatchND SplitV TensorListGetItem UnsortedSegmentMax
      UnsortedSegmentMin UnsortedSegmentProd UnsortedSegmentSum
    """.split(),
    (1, 2),
  ),
  **dict.fromkeys(
    """
      Gather MatrixDiagPartV2 MatrixDiagPartV3 ResourceGather ResourceGatherNd
      SparseSoftmaxCrossEntropyWithLogits TensorListSetItem TensorScatterAdd
      TensorScatterMax TensorScatterMin TensorScatterSub TensorScatterUpdate
    """.split(),
    (1,),
  ),
  **dict.fromkeys("CudnnRNNBackpropV3 CudnnRNNV3".split(), (4,)),
  "BroadcastGradientArgs": (0, 1),
  "ImageProjectiveTransformV3": (2,),
  **dict.fromkeys("MatrixDiagV2 MatrixDiagV3".split(), (1, 2, 3)),
  "MaxPoolGradV2": (3, 4),
  "ScatterNd": (0, 2),
  "StridedSlice": (1, 2, 3),
  "StridedSliceGrad": (0, 1, 2, 3),
  **dict.fromkeys("EmptyTensorList TensorListReserve".split(), (0, 1)),
}
_OF_WHOLE_NUMBERS = frozenset(
  "Div FloorDiv FloorMod Mod Pow TruncateDiv TruncateMod".split()
)
# What they say is the same for all numbers of one shape.
OF_SHAPES = frozenset(
  """
    OnesLike Rank Shape ShapeN Size TensorListElementShape TensorListLength
    VariableShape ZerosLike
  """.split()
)
_LAST_INPUT = ("ConcatV2",)  # the axis
_BRANCHES = {
  "If": ("then_branch", "else_branch"),
  "StatelessIf": ("then_branch", "else_branch"),
}
# Of variables and lists, those that they choose from may be of other shapes.
_CHOOSING = ("Select", "SelectV2")
_HANDLES = (tf.resource.as_datatype_enum, tf.variant.as_datatype_enum)
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_LOOPS = ("StatelessWhile", "While")
_MOST_OUTPUTS = 1000  # of a function that nobody knows


def may_end(
  function: Callable[..., object], *specs: tf.TensorSpec
) -> str | None:
  """Names an operation by which one example may end a pass, or None.

  Args:
    function: The pass; its first argument holds examples.
    *specs: Shapes and types of the arguments.
  """
  graph = tf.function(function).get_concrete_function(*specs).graph
  return in_graph(graph, graph.inputs[:1])


def in_graph(graph: tf.Graph, inputs: Sequence[tf.Tensor]) -> str | None:
  """Names an operation by which one example may end a pass, or None.

  Args:
    graph: Of the pass.
    inputs: Placeholders in it that hold examples.
  """
  definition = graph.as_graph_def()
  functions = {f.signature.name: f for f in definition.library.function}
  walk = _Walk(functions)
  walk.nodes(definition.node, {tensor.op.name for tensor in inputs})
  return walk.found


class _Walk:
  """Follows what was made of an example through a graph and its functions.

  `made` has the names of nodes of which all outputs were made of an example,
  and pairs of a name and a number for single outputs of functions.
  """

  def __init__(self, functions: Mapping[str, Any]):
    self._functions = functions
    self.found: str | None = None

  def nodes(self, nodes, made: set) -> set:
    """What was made of examples among the outputs of these nodes and inputs.

    Args:
      nodes: Those of a graph or a function, in any order.
      made: The inputs that hold examples.
    """
    made, waiting = set(made), list(nodes)
    names, done = {node.name for node in nodes}, set()
    while waiting:
      left = []
      for node in waiting:
        if any(n in names and n not in done for n, _ in _sources(node)):
          left.append(node)
          continue
        sources = [
          name in made or (name, number) in made
          for name, number in _sources(node)
        ]
        made |= self._made_by(node, sources)
        done.add(node.name)
      if len(left) == len(waiting):  # a loop as TensorFlow 1 wrote them
        self._name(left[0])
        return made | names
      waiting = left
    return made

  def _made_by(self, node, sources: list[bool]) -> set:
    """The outputs of a node that were made of examples."""
    if node.op in _CALLS:
      found = self._returned(node, "f", sources)
    elif node.op in _LOOPS:
      found = self._looped(node, sources)
    elif node.op in _BRANCHES:
      if sources[0]:  # branches may ask for more memory than there is
        self._name(node)
      each = [
        self._returned(node, name, sources[1:]) for name in _BRANCHES[node.op]
      ]
      found = [sources[0] or any(outputs) for outputs in zip(*each)]
    else:
      if any(sources) and not _answers(node, sources):
        self._name(node)
      is_made = any(sources) and node.op not in OF_SHAPES
      return {node.name} if is_made else set()
    return {(node.name, number) for number, one in enumerate(found) if one}

  def _returned(self, node, name: str, sources) -> list[bool]:
    """Which outputs of a function that a node runs were made of examples."""
    function = self._functions.get(node.attr[name].func.name)
    if function is None:
      self._name(node)
      return [True] * _MOST_OUTPUTS
    arguments = [arg.name for arg in function.signature.input_arg]
    given = {arg for arg, is_made in zip(arguments, sources) if is_made}
    made = self.nodes(function.node_def, given)
    returned = [
      _reference(function.ret[arg.name])
      for arg in function.signature.output_arg
    ]
    return [ref[0] in made or ref in made for ref in returned]

  def _looped(self, node, sources: list[bool]) -> list[bool]:
    """Until no further variable of the loop is made of examples."""
    while True:
      if self._returned(node, "cond", sources)[0]:
        self._name(node)  # how often it runs is made of an example
      after = self._returned(node, "body", sources)
      further = [a or b for a, b in zip(sources, after)]
      if further == sources:
        return sources
      sources = further

  def _name(self, node) -> None:
    self.found = self.found or f"{node.op} {node.name!r}"


def _answers(node, sources: list[bool]) -> bool:
  """Whether an operation answers, given which inputs are made of examples."""
  if node.op in _CHOOSING and node.attr["T"].type in _HANDLES:
    return False
  if node.op in ANSWERING or node.op in OF_SHAPES:
    return True
  if node.op in _LAST_INPUT:
    return not sources[-1]
  if node.op in _OF_WHOLE_NUMBERS:
    kind = tf.dtypes.as_dtype(node.attr["T"].type)
    return not (kind.is_integer and sources[1])
  if node.op not in ARGUMENTS:
    return False
  numbers = [n for n in ARGUMENTS[node.op] if n < len(sources)]
  return not any(sources[number] for number in numbers)


def _sources(node) -> list[tuple[str, int]]:
  """The outputs that a node reads, in the order of its inputs."""
  return [_reference(name) for name in node.input if not name.startswith("^")]


def _reference(name: str) -> tuple[str, int]:
  """Of node, node:1 or node:output:1 the node and the number."""
  first, *rest = name.split(":")
  return first, int(rest[-1]) if rest else 0
