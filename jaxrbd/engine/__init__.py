"""How recursions run, batch and differentiate. Nothing here knows of bodies or joints.

`schedule` packs a forest into rows, `scan` walks them inward and outward, `sweep` differentiates such a walk,
`gather` reads by a fixed index, `kernel` makes a batch-last function one that users vmap and differentiate.
"""
