"""Time integrators: small frozen objects, each with a `step(sys, q, v, acceleration)`."""

from jaxrbd.integrators.explicit import RK4, SemiImplicitEuler

__all__ = ["RK4", "SemiImplicitEuler"]
