"""Files: the implementations of ``base.file_access``. All files are written, flushed and replaced here.

``local`` is for disks, ``arrow`` for any file system of pyarrow, ``hadoop`` for any file system of Hadoop, ``memory``
for the simulator.
"""
