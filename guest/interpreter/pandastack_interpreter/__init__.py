"""The Jupyter-style Python interpreter inside a PandaStack sandbox.

A zygote imports the libraries once; each code context is a fork of it. See ``zygote``, ``context`` and ``channel``.
"""
