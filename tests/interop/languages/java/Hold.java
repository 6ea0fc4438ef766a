// Holds an instance in the middle of a transaction, so that a test kills it there and at no other point.
// The test makes a file `hold-LINE` in a directory. The instance that processes the line renames it to `held-LINE-PID`, and processes
// nothing more. The file is renamed once, so the line holds nobody when another instance processes it again.
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;

final class Hold {
    private final Path directory;

    Hold(String directory) {
        this.directory = Path.of(directory);
    }

    /** Is called once the words of the line are with the producer: they belong to the transaction that the kill leaves open. */
    void at(String line) {
        Path held = directory.resolve("held-" + line + "-" + ProcessHandle.current().pid());
        try {
            Files.move(directory.resolve("hold-" + line), held, StandardCopyOption.ATOMIC_MOVE);
        } catch (NoSuchFileException lineHoldsNobody) {
            return;
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
        while (true) {
            try {
                Thread.sleep(Long.MAX_VALUE);
            } catch (InterruptedException end) {
                // The test kills the process, and nothing else ends the hold.
            }
        }
    }
}
