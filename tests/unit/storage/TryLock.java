import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** Locks a file the way a broker locks a log dir. One command a line: lock PATH, unlock, stop (as a broker stops). */
public class TryLock {
    public static void main(String[] arguments) throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        FileChannel channel = null;
        FileLock lock = null;
        Path path = null;
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            if (line.startsWith("lock ")) {
                path = Path.of(line.substring(5));
                channel = FileChannel.open(path, StandardOpenOption.CREATE, StandardOpenOption.READ, StandardOpenOption.WRITE);
                lock = channel.tryLock();
                System.out.println(lock == null ? "refused" : "locked");
                if (lock == null) channel.close();
            } else {
                lock.release();
                if (line.equals("stop")) Files.delete(path);
                channel.close();
                System.out.println("done");
            }
        }
    }
}
