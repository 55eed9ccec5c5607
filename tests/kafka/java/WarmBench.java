// Kafka's cleaner on equal copies of one log, one after another in this JVM: the last round is the warm one.
package org.apache.kafka.storage.internals.log;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;

public final class WarmBench {
    public static void main(String[] copies) throws Exception {
        for (String copy : copies) {
            CleaningRound.Settings settings = new CleaningRound.Settings();
            settings.now = GenerateLog.START + 3_600_000L;
            System.gc();
            System.out.println(new ObjectMapper().writeValueAsString(
                CleaningRound.run(new File(copy), GenerateLog.PARTITION, settings, false)));
        }
        System.exit(0);
    }
}
