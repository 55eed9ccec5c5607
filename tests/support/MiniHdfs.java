import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** A name node and a data node in this process, until its input ends: directory, port of the name node's HTTP. */
public class MiniHdfs {
    public static void main(String[] arguments) throws Exception {
        Configuration conf = new Configuration();
        conf.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, new File(arguments[0]).getAbsolutePath());
        conf.setBoolean("dfs.permissions.enabled", false);
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(conf)
            .nameNodeHttpPort(Integer.parseInt(arguments[1])).numDataNodes(1).build();
        cluster.waitActive();
        System.out.println("READY " + cluster.getNameNodePort());
        System.out.flush();
        while (System.in.read() >= 0) {
            continue;
        }
        cluster.shutdown(true);
        System.exit(0);
    }
}
