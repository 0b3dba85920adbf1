"""Claude Code's hooks. Stdlib only, and little of it: this starts in milliseconds, and it fails open.

Everything here runs under `python3 -I -S` from a folder that may be named after a version, so `main` makes that
folder the package `untildone`. Nothing here imports dataclasses, typing, re, json, enum, pathlib, subprocess or sqlite3
while it is loaded: each costs as much as starting Python itself. What rarely happens may import them where it happens.
"""
