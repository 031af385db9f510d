"""The course: marked blocks of the sources as exercises, and the tool that hands them out.

``python -m apps.course student DIR`` writes a tree in which the blocks are empty; in that tree the
other commands check answers, give hints, show progress and put solutions back. The exercises are
described in ``parts/``, one file a part; their tests are ``tests/exercises``.
"""
