"""The course: its exercises are marked blocks of the sources, and this tool helps to solve them.

``python -m apps.course student DIR`` writes a tree in which the blocks are empty. In that tree the
other commands check answers, give hints, show progress and restore solutions. ``parts/`` describes
the exercises, a file for each part; ``tests/exercises`` has their tests.
"""
