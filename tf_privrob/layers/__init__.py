"""Keras layers that carry a bound or a guarantee; all of them serialise."""

from tf_privrob.layers.bounded import BoundedActivation

__all__ = ["BoundedActivation"]
