"""Files: the implementations of ``core.base.files``, and the one place where a file is written, flushed and replaced.

``local`` is for disks, ``arrow`` for any file system of pyarrow, ``hadoop`` for any file system of Hadoop, ``memory``
for the simulator. All of them pass one test suite (``tests/unit/files/contract.py``).
"""
