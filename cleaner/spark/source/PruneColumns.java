package cleaner.spark.source;

import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceReadInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScan;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.collection.mutable.ArrayBuffer;
import scala.runtime.AbstractFunction1;

/**
 * An optimizer rule: a scan of `kafkalog` gives only the columns that the query uses.
 *
 * Spark does not ask a data source in Python which columns it may leave out, but its own rules put a Project with the
 * columns in use above the scan. This rule finds `Project, Filter..., scan` and puts in the scan's place one with the
 * same tasks, planned once a DataFrame as before, whose tasks give fewer columns (prune.py). All of it are Spark's own
 * classes: executors need none of this.
 *
 * prune.py has it compiled by Janino, which Spark brings along. Janino knows no type arguments: hence the casts.
 */
public class PruneColumns extends Rule {
    private static final String NAME = "kafkalog";

    private final Field source;
    private final Field options;
    private final Field filters;

    /** Fails where this Spark's classes are other ones. */
    public PruneColumns() throws NoSuchFieldException {
        source = field("ds");
        options = field("options");
        filters = field("supportedFilters");
    }

    private static Field field(String name) throws NoSuchFieldException {
        Field found = PythonScan.class.getDeclaredField(name);
        found.setAccessible(true);
        return found;
    }

    public TreeNode apply(TreeNode plan) {
        return within((LogicalPlan) plan, null);
    }

    /** Narrows the scans of a plan; `used` are the columns in use above it, null for all. */
    private LogicalPlan within(LogicalPlan plan, AttributeSet used) {
        if (plan instanceof DataSourceV2ScanRelation) {
            return used == null ? plan : narrowed((DataSourceV2ScanRelation) plan, used);
        }
        AttributeSet below = null;
        if (plan instanceof Project) {
            below = plan.references();
        } else if (plan instanceof Filter && used != null) {
            below = used.$plus$plus(plan.references());
        }
        final AttributeSet usedBelow = below;
        return (LogicalPlan) plan.mapChildren(new AbstractFunction1() {
            public Object apply(Object child) {
                return within((LogicalPlan) child, usedBelow);
            }
        });
    }

    private LogicalPlan narrowed(DataSourceV2ScanRelation relation, AttributeSet used) {
        if (!(relation.scan() instanceof PythonScan) || !relation.relation().table().name().equalsIgnoreCase(NAME)) {
            return relation;
        }
        List columns = columns(relation, used);
        if (columns.size() == relation.output().size()) {
            return relation;
        }
        StringBuilder names = new StringBuilder();
        StructType schema = new StructType();
        ArrayBuffer output = new ArrayBuffer();
        for (int i = 0; i < columns.size(); i++) {
            AttributeReference each = (AttributeReference) columns.get(i);
            names.append(i == 0 ? "" : ",").append(each.name());
            schema = schema.add(each.name(), each.dataType(), each.nullable());
            output.addOne(each);
        }
        // Whatever else a version of Spark keeps in a relation stays as it is.
        Object[] parts = new Object[relation.productArity()];
        for (int i = 0; i < parts.length; i++) {
            parts[i] = relation.productElement(i);
        }
        parts[1] = narrowed((PythonScan) relation.scan(), names.toString(), schema);
        parts[2] = output.toSeq();
        return (LogicalPlan) relation.makeCopy(parts);
    }

    /** Returns the columns in use; rows without any still have to be counted, so then the smallest column. */
    private static List columns(DataSourceV2ScanRelation relation, AttributeSet used) {
        List found = new ArrayList();
        AttributeReference least = null;
        for (int i = 0; i < relation.output().size(); i++) {
            AttributeReference each = (AttributeReference) relation.output().apply(i);
            if (used.contains(each)) {
                found.add(each);
            }
            if (least == null || each.dataType().defaultSize() < least.dataType().defaultSize()) {
                least = each;
            }
        }
        if (found.isEmpty() && least != null) {
            found.add(least);
        }
        return found;
    }

    private PythonScan narrowed(PythonScan scan, String names, StructType schema) {
        PythonDataSourceV2 planned;
        CaseInsensitiveStringMap given;
        org.apache.spark.sql.sources.Filter[] pushed;
        try {
            planned = (PythonDataSourceV2) source.get(scan);
            given = (CaseInsensitiveStringMap) options.get(scan);
            pushed = (org.apache.spark.sql.sources.Filter[]) filters.get(scan);
        } catch (IllegalAccessException error) {
            throw new IllegalStateException(error);
        }
        PythonDataSourceReadInfo all = planned.getOrCreateReadInfo(NAME, given, scan.readSchema(), false);
        // A pickle that calls prune.read_command(names) in the task.
        String command = "ccleaner.spark.source.prune\nread_command\n(V" + names + "\ntR.";
        PythonDataSourceV2 narrow = new PythonDataSourceV2();
        narrow.setShortName(NAME);
        narrow.setReadInfo(
            new PythonDataSourceReadInfo(command.getBytes(StandardCharsets.US_ASCII), all.partitions()));
        return new PythonScan(narrow, NAME, schema, given, pushed);
    }
}
