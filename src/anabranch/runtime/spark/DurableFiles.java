package org.apache.spark.sql.execution.streaming.checkpointing;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.OpenOption;
import java.nio.file.StandardOpenOption;
import java.util.zip.CRC32;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;
import org.apache.spark.unsafe.Platform;

/**
 * Writes Spark's small log files on a local disk without starting processes, and on stable storage.
 *
 * The parent creates a temporary file through Hadoop's local file system, which runs `chmod` for it and for the file of
 * its checksums, and syncs neither. This class writes the same two files itself and syncs them, and so it does with the
 * folders that are new to a path; reading, listing and deleting stay the parent's.
 */
public class DurableFiles extends FileSystemBasedCheckpointFileManager {
  public DurableFiles(Path path, Configuration conf) {
    super(path, conf);
  }

  public FSDataOutputStream createTempFile(Path path) {
    return new FSDataOutputStream(new DurableFile(local(path)), null);
  }

  public void renameTempFile(Path from, Path to, boolean overwrite) {
    super.renameTempFile(from, to, overwrite);
    try {
      sync(local(to).getParentFile());
    } catch (IOException failure) {
      Platform.throwException(failure);
    }
  }

  public void mkdirs(Path path) {
    File made = local(path);
    File existing = made;
    while (!existing.exists()) {
      existing = existing.getParentFile();
    }
    super.mkdirs(path);
    try {
      for (File folder = made; !folder.equals(existing); folder = folder.getParentFile()) {
        sync(folder.getParentFile());
      }
    } catch (IOException failure) {
      Platform.throwException(failure);
    }
  }

  private static File local(Path path) {
    return new File(path.toUri().getPath());
  }

  private static void sync(File folder) throws IOException {
    FileChannel opened = FileChannel.open(folder.toPath(), new OpenOption[] {StandardOpenOption.READ});
    try {
      opened.force(true);
    } finally {
      opened.close();
    }
  }
}

/** A file that is written when it is closed, with its checksums beside it as Hadoop's ChecksumFileSystem has them. */
class DurableFile extends ByteArrayOutputStream {
  private static final int CHUNK = 512;

  private final File file;

  DurableFile(File file) {
    this.file = file;
  }

  public void close() throws IOException {
    ByteArrayOutputStream checksums = new ByteArrayOutputStream();
    DataOutputStream out = new DataOutputStream(checksums);
    out.writeBytes("crc\0");
    out.writeInt(CHUNK);
    for (int start = 0; start < count; start += CHUNK) {
      CRC32 crc = new CRC32();
      crc.update(buf, start, Math.min(CHUNK, count - start));
      out.writeInt((int) crc.getValue());
    }
    write(new File(file.getParentFile(), "." + file.getName() + ".crc"), checksums);
    write(file, this);
  }

  private static void write(File file, ByteArrayOutputStream content) throws IOException {
    FileOutputStream out = new FileOutputStream(file);
    try {
      content.writeTo(out);
      out.getFD().sync();
    } finally {
      out.close();
    }
  }
}
