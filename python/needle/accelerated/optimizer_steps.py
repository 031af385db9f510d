"""One optimiser step over many parameters at once: SGD and Adam.

Called by ``optim``, which has the schedules, groups and state. Velocities and moments change in
place. The new parameters are new arrays, because a graph may hold the old ones; a kernel changes a
parameter in place only if its entry of ``reuse`` is True: nothing else refers to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ..backends.base import Backend
from ..backends.writes import note_write
from ..shapes import compact_strides
from .registry import Accelerated, Array, accelerated, empty

Arrays = Sequence[Array]


@accelerated()
def sgd_step(
    params: Arrays,
    grads: Arrays,
    velocities: Arrays,
    lr: float,
    momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
    *,
    reuse: Sequence[bool] = (),
) -> Arrays:
    """Return the new parameters; all arrays share a dtype, and ``velocities`` may be empty.

    g = grad + weight_decay*p; v = momentum*v + (1-dampening)*g (v = g without velocities);
    new p = p - lr*(nesterov ? g + momentum*v : v).
    """
    ### BEGIN YOUR SOLUTION [sgd]
    new = []
    for i, (param, grad) in enumerate(zip(params, grads, strict=True)):
        step = grad + param * weight_decay if weight_decay else grad
        if velocities:
            velocity = velocities[i]
            velocity[...] = velocity * momentum + step * (1.0 - dampening)
            step = step + velocity * momentum if nesterov else velocity
        new.append(param - step * lr)
    return new
    ### END YOUR SOLUTION


@accelerated()
def adam_step(
    params: Arrays,
    grads: Arrays,
    firsts: Arrays,
    seconds: Arrays,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decoupled: bool,
    step: int,
    *,
    reuse: Sequence[bool] = (),
) -> Arrays:
    """Return the new parameters by Adam (Kingma & Ba 2015); ``step`` counts from 1.

    m = beta1*m + (1-beta1)*g; v = beta2*v + (1-beta2)*g**2; new p = p - lr*u/(sqrt(w)+eps) with
    u = m/(1-beta1**step), w = v/(1-beta2**step). Weight decay: g = grad + weight_decay*p, or
    ``decoupled`` (AdamW, Loshchilov & Hutter 2019): p *= 1 - lr*weight_decay first.
    """
    ### BEGIN YOUR SOLUTION [adam]
    new = []
    for param, grad, first, second in zip(params, grads, firsts, seconds, strict=True):
        xp = param.__array_namespace__()
        if decoupled:
            param = param * (1.0 - lr * weight_decay)
        elif weight_decay:
            grad = grad + param * weight_decay
        first[...] = first * beta1 + grad * (1.0 - beta1)
        second[...] = second * beta2 + grad * grad * (1.0 - beta2)
        mean = first / (1.0 - beta1**step)
        spread = xp.sqrt(second / (1.0 - beta2**step))
        new.append(param - lr * mean / (spread + eps))
    return new
    ### END YOUR SOLUTION


def _run(
    step: Accelerated[..., Arrays], backend: Backend, *args: Any, reuse: Sequence[bool] = ()
) -> Arrays:
    """Compute the new parameters with the kernel, which takes row-major views, or the definition.

    The definition runs if a state array is not row-major: the kernel updates state in place, and
    must not update a row-major copy instead.
    """
    groups = [arg for arg in args if isinstance(arg, Sequence)]
    settings = args[len(groups) :]
    views = [[a.view for a in arrays] for arrays in groups]
    layouts = [[view[1:3] for view in each] for each in views]
    rows = [(shape, compact_strides(shape)) for shape, _ in layouts[0]]
    if not all(layout == rows for layout in layouts[2:] if layout):
        return step.definition(*args)
    params = groups[0]
    for i, arrays in enumerate(groups[:2]):
        if layouts[i] != rows:
            views[i] = [array.compact().view for array in arrays]
    in_place = reuse if reuse and layouts[0] == rows else [False] * len(params)
    outs = [p if same else empty(p, p.shape) for p, same in zip(params, in_place, strict=True)]
    for param, out in zip(params, outs, strict=True):
        if out is param:
            note_write(out.view.handle)
    getattr(backend, step.name)(*views, [out.view for out in outs], *settings)
    return outs


for _step in (sgd_step, adam_step):
    _step.kernel(partial(_run, _step))
