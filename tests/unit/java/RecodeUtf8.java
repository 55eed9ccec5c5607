import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;

/** Reads lines of hex digits, decodes each as UTF-8, encodes it again, and prints hex digits: what Java makes of bytes. */
public class RecodeUtf8 {
    public static void main(String[] arguments) throws Exception {
        HexFormat hex = HexFormat.of();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        StringBuilder answers = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String text = new String(hex.parseHex(line), StandardCharsets.UTF_8);
            answers.append(hex.formatHex(text.getBytes(StandardCharsets.UTF_8))).append('\n');
        }
        System.out.print(answers);
    }
}
