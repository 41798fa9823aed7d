"""Shaping a Mac: what its files must say, checked and rendered here without touching any machine.

`grammar` refuses what must not travel to a Mac, `pf_conf`, `kcpassword` and `plist` own one file each, and `drift` tells
which parts of a Mac differ from what is wanted.
"""
