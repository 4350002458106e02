"""Hadoop files: files on any file system that Hadoop supports, written as Spark writes its own files beside them.

Spark knows for each file system how to replace a file atomically, and users may configure it
(``spark.sql.streaming.checkpointFileManagerClass``); a crash between a deletion and a renaming would lose the file.
Objects of the JVM are arguments, so nothing here imports Spark.
"""

from __future__ import annotations

from typing import Any

CONDITIONAL = "fs.option.create.conditional.overwrite"
"""Requests from Hadoop's S3 client a write that fails if the object exists; other clients ignore the option."""


class HadoopFiles:
    """The files below a URL."""

    def __init__(self, jvm: Any, directory: str, configuration: Any, manager: Any) -> None:
        """Use a directory; its folders are made with the first write to each.

        Args:
            jvm: the JVM.
            directory: a URL.
            configuration: Hadoop's.
            manager: Spark's ``CheckpointFileManager`` for the directory.
        """
        self._path = jvm.org.apache.hadoop.fs.Path
        self._read_all = jvm.org.apache.hadoop.io.IOUtils.readFullyToByteArray
        self._root, self._configuration, self._manager = directory, configuration, manager
        self._folders: set[str] = set()

    def _at(self, name: str) -> Any:
        return self._path(f"{self._root}/{name}" if name else self._root)

    def make_folder(self, folder: str) -> None:
        """Make a folder if it is missing; an empty name is the directory itself."""
        if folder not in self._folders:
            self._manager.mkdirs(self._at(folder))
            self._folders.add(folder)

    def read(self, name: str) -> bytes | None:
        """See ``Files.read``."""
        path = self._at(name)
        if not self._manager.exists(path):
            return None
        stream = self._manager.open(path)
        try:
            return bytes(self._read_all(stream))
        finally:
            stream.close()

    def write(self, name: str, data: bytes) -> None:
        """See ``Files.write``."""
        self.make_folder(name.rpartition("/")[0])
        stream = self._manager.createAtomic(self._at(name), True)
        try:
            stream.write(bytearray(data))
        except BaseException:
            stream.cancel()
            raise
        stream.close()

    def create(self, name: str, data: bytes) -> bool:
        """See ``Files.create``.

        HDFS and most object stores check this atomically; on S3, Hadoop's client must request a conditional write.
        """
        path = self._at(name)
        try:
            builder = path.getFileSystem(self._configuration).createFile(path).overwrite(False).recursive()
            stream = builder.opt(CONDITIONAL, True).build()
            stream.write(bytearray(data))
            stream.close()
        except Exception as error:
            java = getattr(error, "java_exception", None)
            if java is not None and "FileAlreadyExists" in java.getClass().getName():
                return False
            raise
        return True

    def names(self, folder: str) -> list[str]:
        """See ``Files.names``."""
        path = self._at(folder)
        if not self._manager.exists(path):
            return []
        names = (status.getPath().getName() for status in self._manager.list(path))
        return [name for name in names if not name.startswith(".")]

    def remove(self, name: str) -> None:
        """See ``Files.remove``."""
        self._manager.delete(self._at(name))
