// Kafka's cleaner on copies of logs, one round for each log dir named on a line of its input: the JVM grows warm.
// Behind the name, after a tab each, settings of the topic: key=value.
package org.apache.kafka.storage.internals.log;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;

public final class WarmBench {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t");
            CleaningRound.Settings settings = new CleaningRound.Settings();
            settings.now = GenerateLog.START + 3_600_000L;
            for (int i = 1; i < words.length; i++) settings.put(words[i].split("=")[0], words[i].split("=")[1]);
            System.gc();
            System.out.println(new ObjectMapper().writeValueAsString(
                CleaningRound.run(new File(words[0]), GenerateLog.PARTITION, settings, false)));
        }
        System.exit(0);
    }
}
