package sparkbolt;

import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.OpenOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.Syncable;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's local file system, but for two things: it starts no process to set the permissions of a file, and what it
 * has closed and renamed is on the disk.
 *
 * sparkbolt-jvm.jar beside this file is made of it by scripts/jar, with the compiler that Spark brings (Janino, which
 * knows neither lambdas nor variable arguments).
 */
public class SyncedLocalFileSystem extends LocalFileSystem {
    /** It writes no files of checksums, as Spark's own manager of checkpoint files does not; those that are there are
     * checked. */
    public SyncedLocalFileSystem() {
        super(new Raw());
        setWriteChecksum(false);
    }

    /** The files themselves. */
    public static class Raw extends RawLocalFileSystem {
        @Override
        public void setPermission(Path path, FsPermission permission) throws IOException {
            try {
                if (!permission.getStickyBit()) {
                    Files.setPosixFilePermissions(
                        pathToFile(path).toPath(), PosixFilePermissions.fromString(permission.toString()));
                    return;
                }
            } catch (UnsupportedOperationException error) {
                // this disk knows no such permissions: as Hadoop does it
            }
            super.setPermission(path, permission);
        }

        @Override
        public boolean rename(Path from, Path to) throws IOException {
            boolean renamed = super.rename(from, to);
            if (renamed) {
                FileChannel folder = FileChannel.open(
                    pathToFile(to).toPath().getParent(), new OpenOption[] {StandardOpenOption.READ});
                try {
                    folder.force(true);
                } finally {
                    folder.close();
                }
            }
            return renamed;
        }

        @Override
        protected OutputStream createOutputStreamWithMode(Path path, boolean append, FsPermission permission)
                throws IOException {
            return new SyncedStream(super.createOutputStreamWithMode(path, append, permission));
        }
    }

    /** A file that is on the disk when it is closed. */
    static class SyncedStream extends FilterOutputStream {
        private boolean open = true;

        SyncedStream(OutputStream out) {
            super(out);
        }

        @Override
        public void write(byte[] bytes, int from, int count) throws IOException {
            out.write(bytes, from, count);
        }

        @Override
        public void close() throws IOException {
            if (open) {
                open = false;
                try {
                    ((Syncable) out).hsync();
                } finally {
                    out.close();
                }
            }
        }
    }
}
