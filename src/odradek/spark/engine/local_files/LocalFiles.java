package org.apache.hadoop.fs;

import java.io.File;
import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.permission.FsPermission;

/** Files of this machine, for Spark's checkpoints. Hadoop starts `chmod` and `readlink` for each file where it has no native library. */
class OwnProcessFiles extends RawLocalFileSystem {
    public void setPermission(Path path, FsPermission permission) throws IOException {
        File file = pathToFile(path);
        if (permission.getStickyBit() || !Files.getFileStore(file.toPath()).supportsFileAttributeView("posix")) {
            super.setPermission(path, permission);
            return;
        }
        Files.setPosixFilePermissions(file.toPath(), PosixFilePermissions.fromString(permission.toString()));
    }

    public FileStatus getFileLinkStatus(Path path) throws IOException {
        if (Files.isSymbolicLink(pathToFile(path).toPath())) {
            return super.getFileLinkStatus(path);
        }
        return getFileStatus(path);
    }
}

class OwnProcessContext extends DelegateToFileSystem {
    OwnProcessContext(URI uri, Configuration configuration) throws IOException, URISyntaxException {
        super(uri, new OwnProcessFiles(), configuration, uri.getScheme(), false);
    }

    public int getUriDefaultPort() {
        return -1;
    }

    public boolean isValidName(String name) {
        return true;
    }
}

/** `fs.file.impl`. */
public class OdradekLocalFileSystem extends LocalFileSystem {
    public OdradekLocalFileSystem() {
        super(new OwnProcessFiles());
    }
}

/** `fs.AbstractFileSystem.file.impl`. */
class OdradekLocalFs extends ChecksumFs {
    OdradekLocalFs(URI uri, Configuration configuration) throws IOException, URISyntaxException {
        super(new OwnProcessContext(FsConstants.LOCAL_FS_URI, configuration));
    }
}
