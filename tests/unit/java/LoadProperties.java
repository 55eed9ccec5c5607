import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.util.HexFormat;
import java.util.Properties;
import java.util.TreeMap;

/** For each line of hex digits on stdin (the bytes of a file): what java.util.Properties reads, as hex of UTF-16. */
public class LoadProperties {
    public static void main(String[] arguments) throws Exception {
        HexFormat hex = HexFormat.of();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder output = new StringBuilder();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            Properties properties = new Properties();
            try {
                properties.load(new ByteArrayInputStream(hex.parseHex(line)));
            } catch (IllegalArgumentException malformed) {
                output.append("refused\n");
                continue;
            }
            TreeMap<String, String> pairs = new TreeMap<>();
            for (String key : properties.stringPropertyNames()) {
                pairs.put(utf16(hex, key), utf16(hex, properties.getProperty(key)));
            }
            pairs.forEach((key, value) -> output.append(key).append('=').append(value).append(' '));
            output.append('\n');
        }
        System.out.print(output);
    }

    private static String utf16(HexFormat hex, String text) {
        StringBuilder digits = new StringBuilder();
        for (char unit : text.toCharArray()) {
            digits.append(hex.toHexDigits(unit));
        }
        return digits.toString();
    }
}
