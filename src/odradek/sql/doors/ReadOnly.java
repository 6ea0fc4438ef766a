// What the doors of Spark refuse. Janino, which Spark brings along, compiles this file when the doors open: so there is no jar.
// Janino's Java has no generics to speak of, no lambdas, and no `var`.
package odradek.doors;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hive.metastore.api.Database;
import org.apache.hadoop.hive.ql.metadata.Partition;
import org.apache.hadoop.hive.ql.metadata.Table;
import org.apache.hadoop.hive.ql.security.HiveAuthenticationProvider;
import org.apache.hadoop.hive.ql.security.authorization.HiveAuthorizationProvider;
import org.apache.hadoop.hive.ql.security.authorization.Privilege;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UserDefinedExpression;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.CompoundPlanStatement;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ParsedStatement;
import org.apache.spark.sql.catalyst.plans.logical.ScriptTransformation;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.command.SetCommand;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.sparkproject.connect.google_protos.rpc.ErrorInfo;
import org.sparkproject.connect.grpc.Metadata;
import org.sparkproject.connect.grpc.ServerCall;
import org.sparkproject.connect.grpc.ServerCallHandler;
import org.sparkproject.connect.grpc.ServerInterceptor;
import org.sparkproject.connect.grpc.Status;
import org.sparkproject.connect.grpc.protobuf.StatusProto;
import org.sparkproject.connect.protobuf.Any;
import org.sparkproject.connect.protobuf.Descriptors;
import org.sparkproject.connect.protobuf.Message;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractFunction2;
import scala.runtime.BoxedUnit;

final class Refusal {
    private Refusal() {}

    static final String HINT = "the doors of Spark only read; statements that change something go to odradek sql";

    static void raise(String what) {
        throw new UnsupportedOperationException(what + " is refused: " + HINT);
    }

    static Set names(String text) {
        return new HashSet(Arrays.asList(text.trim().split("\\s+")));
    }
}

final class Plans {
    private Plans() {}

    /** Commands, parsed and analyzed, that show what there is. */
    static final Set COMMANDS = Refusal.names(
        "ShowTables ShowTablesCommand ShowTablesExtended ShowTablesJsonCommand ShowViews ShowViewsCommand ShowColumns"
            + " ShowColumnsCommand ShowNamespaces ShowNamespacesCommand ShowFunctions ShowFunctionsCommand"
            + " ShowCatalogsCommand ShowCurrentNamespaceCommand ShowCreateTable ShowCreateTableCommand"
            + " ShowTableProperties ShowTablePropertiesCommand DescribeRelation DescribeTableCommand"
            + " DescribeRelationJsonCommand DescribeColumn DescribeColumnCommand DescribeQueryCommand DescribeFunction"
            + " DescribeFunctionCommand DescribeNamespace DescribeDatabaseCommand ExplainCommand"
            + " SetCatalogAndNamespace SetNamespaceCommand");

    /** Of analyzed plans: what queries are made of. */
    static final Set NODES = Refusal.names(
        "Aggregate CTERelationDef CTERelationRef CollectMetrics CommandResult DataFrameDropColumns Deduplicate"
            + " DeserializeToObject Distinct EmptyRelation Except Expand Filter Generate GlobalLimit Intersect Join LateralJoin LimitAll"
            + " LocalLimit LocalRelation LogicalQueryStage Offset OneRowRelation Pivot Project Range"
            + " PipeOperator RebalancePartitions Repartition RepartitionByExpression ResolvedHint ReturnAnswer Sample Sort"
            + " Subquery SubqueryAlias Tail Transpose Union UnionLoop UnionLoopRef Unpivot Window WithCTE"
            + " WithWindowDefinition ResolvedTable ResolvedNamespace ResolvedIdentifier ResolvedPersistentView"
            + " ResolvedNonPersistentFunc ResolvedPersistentFunc");

    static void checkCommand(QueryPlan plan) {
        String name = plan.getClass().getSimpleName();
        if (plan instanceof SetCommand && ((SetCommand) plan).kv().isEmpty()) {
            return;
        }
        boolean changes = plan instanceof Command
            || plan instanceof ParsedStatement
            || plan instanceof CompoundPlanStatement
            || plan instanceof ScriptTransformation;
        if (changes && !COMMANDS.contains(name)) {
            Refusal.raise(name);
        }
    }

    /** Of a plan that is parsed and not analyzed: before Spark looks for anything that it names. */
    static void checkParsed(QueryPlan plan) {
        checkCommand(plan);
        if (plan instanceof UnresolvedRelation) {
            scala.collection.immutable.Seq parts = ((UnresolvedRelation) plan).multipartIdentifier();
            for (int place = 0; place < parts.size() - 1; place++) {
                String part = parts.apply(place).toString();
                if (!part.equalsIgnoreCase("default") && !part.equalsIgnoreCase("spark_catalog")) {
                    Refusal.raise("a relation of " + part);
                }
            }
        }
        Iterator below = below(plan).iterator();
        while (below.hasNext()) {
            checkParsed((QueryPlan) below.next());
        }
    }

    static void checkAnalyzed(QueryPlan plan, String format) {
        checkCommand(plan);
        String name = plan.getClass().getSimpleName();
        if (plan instanceof DataSourceV2Relation) {
            String table = ((DataSourceV2Relation) plan).table().name();
            if (!table.equals(format)) {
                Refusal.raise("a relation of " + table);
            }
        } else if (!(plan instanceof Command) && !(plan instanceof SetCommand) && !NODES.contains(name)) {
            Refusal.raise(name);
        }
        scala.collection.Iterator expressions = plan.expressions().iterator();
        while (expressions.hasNext()) {
            checkExpression((Expression) expressions.next());
        }
        Iterator below = below(plan).iterator();
        while (below.hasNext()) {
            checkAnalyzed((QueryPlan) below.next(), format);
        }
    }

    private static void checkExpression(Expression expression) {
        String name = expression.getClass().getSimpleName();
        if (expression instanceof UserDefinedExpression || name.indexOf("Reflection") >= 0) {
            Refusal.raise("a function of users (" + name + ")");
        }
        scala.collection.Iterator children = expression.children().iterator();
        while (children.hasNext()) {
            checkExpression((Expression) children.next());
        }
    }

    private static List below(QueryPlan plan) {
        List below = new java.util.ArrayList();
        scala.collection.Iterator children = plan.children().iterator();
        while (children.hasNext()) {
            below.add(children.next());
        }
        scala.collection.Iterator subqueries = plan.subqueries().iterator();
        while (subqueries.hasNext()) {
            below.add(subqueries.next());
        }
        return below;
    }
}

/** SparkSession to (LogicalPlan to Unit): a check rule for each session but the one of the owner, who makes the tables. */
public final class CheckRules extends AbstractFunction1 {
    private final Object owner;
    private final String format;

    public CheckRules(Object owner, String format) {
        this.owner = owner;
        this.format = format;
    }

    public Object apply(Object session) {
        return new CheckRule(session == owner ? null : format);
    }
}

final class CheckRule extends AbstractFunction1 {
    private final String format;

    CheckRule(String format) {
        this.format = format;
    }

    public Object apply(Object plan) {
        if (format != null) {
            Plans.checkAnalyzed((QueryPlan) plan, format);
        }
        return BoxedUnit.UNIT;
    }
}

/** (SparkSession, ParserInterface) to ParserInterface: it refuses a statement before Spark does anything with it. */
public final class Parsers extends AbstractFunction2 {
    private final Object owner;
    private final Map settings;

    /** `settings`: of a session that is new. */
    public Parsers(Object owner, Map settings) {
        this.owner = owner;
        this.settings = new HashMap(settings);
    }

    public Object apply(Object session, Object parser) {
        if (session == owner) {
            return parser;
        }
        return Proxy.newProxyInstance(
            ParserInterface.class.getClassLoader(),
            new Class[] {ParserInterface.class},
            new ParserCalls((SparkSession) session, parser, settings));
    }
}

final class ParserCalls implements InvocationHandler {
    /** The JDBC server sets them itself, and they change no more than how values look. */
    private static final Set HARMLESS = Refusal.names(
        "spark.sql.binaryOutputStyle spark.sql.datetime.java8API.enabled spark.sql.session.timeZone");

    private final SparkSession session;
    private final Object parser;
    private final Map settings;

    ParserCalls(SparkSession session, Object parser, Map settings) {
        this.session = session;
        this.parser = parser;
        this.settings = settings;
    }

    public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
        Object result;
        try {
            result = method.invoke(parser, arguments);
        } catch (InvocationTargetException error) {
            throw error.getCause();
        }
        if (result instanceof LogicalPlan) {
            checkSettings();
            Plans.checkParsed((QueryPlan) result);
        }
        return result;
    }

    /** A JDBC URL may bring settings along, and some of them load classes: only the doors' settings count. */
    private void checkSettings() {
        Iterator given = session.sessionState().conf().settings().entrySet().iterator();
        while (given.hasNext()) {
            Map.Entry setting = (Map.Entry) given.next();
            String name = (String) setting.getKey();
            if (name.startsWith("spark.") && !HARMLESS.contains(name) && !setting.getValue().equals(settings.get(name))) {
                Refusal.raise("the setting " + name);
            }
        }
    }
}

/** Of Spark Connect: what a client may send, field by field. */
public final class ConnectCalls implements ServerInterceptor {
    private static final Set METHODS = Refusal.names(
        "ExecutePlan AnalyzePlan Config ArtifactStatus Interrupt ReattachExecute ReleaseExecute ReleaseSession"
            + " FetchErrorDetails GetStatus");
    private static final Map FIELDS = new HashMap();
    private static final String KIND = "java.lang.UnsupportedOperationException";

    static {
        FIELDS.put("spark.connect.Plan", Refusal.names("root command"));
        FIELDS.put("spark.connect.Command", Refusal.names("sql_command"));
        FIELDS.put("spark.connect.Read", Refusal.names("named_table"));
        FIELDS.put(
            "spark.connect.Relation",
            Refusal.names(
                "common read project filter join set_op sort limit aggregate sql local_relation sample offset"
                    + " deduplicate range subquery_alias repartition to_df with_columns_renamed show_string drop"
                    + " tail with_columns hint unpivot to_schema repartition_by_expression collect_metrics"
                    + " html_string with_relations transpose unresolved_table_valued_function lateral_join fill_na"
                    + " drop_na replace summary crosstab describe cov corr approx_quantile freq_items sample_by"
                    + " catalog"));
        FIELDS.put(
            "spark.connect.Expression",
            Refusal.names(
                "common literal unresolved_attribute unresolved_function expression_string unresolved_star alias"
                    + " cast unresolved_regex sort_order lambda_function window unresolved_extract_value"
                    + " update_fields unresolved_named_lambda_variable call_function named_argument_expression"
                    + " subquery_expression"));
        FIELDS.put(
            "spark.connect.Catalog",
            Refusal.names(
                "current_database set_current_database list_databases list_tables list_functions list_columns"
                    + " get_database get_table get_function database_exists table_exists function_exists is_cached"
                    + " current_catalog set_current_catalog list_catalogs list_views get_table_properties"
                    + " get_create_table_string"));
        FIELDS.put(
            "spark.connect.AnalyzePlanRequest",
            Refusal.names(
                "session_id client_observed_server_side_session_id user_context client_type schema explain"
                    + " tree_string is_local is_streaming spark_version ddl_parse same_semantics semantic_hash"
                    + " get_storage_level json_to_ddl"));
        FIELDS.put(
            "spark.connect.ConfigRequest.Operation",
            Refusal.names("get get_with_default get_option get_all is_modifiable"));
    }

    public ConnectCalls() {}

    public ServerCall.Listener interceptCall(ServerCall call, Metadata headers, ServerCallHandler next) {
        String method = call.getMethodDescriptor().getBareMethodName();
        if (METHODS.contains(method)) {
            return new CheckedCall(call, next.startCall(call, headers));
        }
        deny(call, method);
        return new CheckedCall(call, null);
    }

    /** Spark's clients raise the content of the details; others show the description. */
    static void deny(ServerCall call, String what) {
        String message = what + " is refused: " + Refusal.HINT;
        ErrorInfo details = ErrorInfo.newBuilder()
            .setReason(KIND)
            .setDomain("org.apache.spark")
            .putMetadata("classes", "[\"" + KIND + "\"]")
            .build();
        org.sparkproject.connect.google_protos.rpc.Status status =
            org.sparkproject.connect.google_protos.rpc.Status.newBuilder()
                .setCode(Status.PERMISSION_DENIED.getCode().value())
                .setMessage(message)
                .addDetails(Any.pack(details))
                .build();
        call.close(
            Status.PERMISSION_DENIED.withDescription(message),
            StatusProto.toStatusRuntimeException(status).getTrailers());
    }

    /** The first field that is refused, or null. */
    static String refused(Message message) {
        Set allowed = (Set) FIELDS.get(message.getDescriptorForType().getFullName());
        Iterator fields = message.getAllFields().entrySet().iterator();
        while (fields.hasNext()) {
            Map.Entry field = (Map.Entry) fields.next();
            Descriptors.FieldDescriptor descriptor = (Descriptors.FieldDescriptor) field.getKey();
            if (allowed != null && !allowed.contains(descriptor.getName())) {
                return descriptor.getName();
            }
            Object value = field.getValue();
            Collection members = value instanceof Collection ? (Collection) value : Collections.singletonList(value);
            Iterator each = members.iterator();
            while (each.hasNext()) {
                Object member = each.next();
                String below = member instanceof Message ? refused((Message) member) : null;
                if (below != null) {
                    return below;
                }
            }
        }
        return null;
    }
}

/** `next` null: the call is refused. */
final class CheckedCall extends ServerCall.Listener {
    private final ServerCall call;
    private ServerCall.Listener next;

    CheckedCall(ServerCall call, ServerCall.Listener next) {
        this.call = call;
        this.next = next;
    }

    public void onMessage(Object message) {
        String refused = next == null ? null : ConnectCalls.refused((Message) message);
        if (refused != null) {
            next.onCancel();
            next = null;
            ConnectCalls.deny(call, refused);
        } else if (next != null) {
            next.onMessage(message);
        }
    }

    public void onHalfClose() {
        if (next != null) {
            next.onHalfClose();
        }
    }

    public void onCancel() {
        if (next != null) {
            next.onCancel();
        }
    }

    public void onComplete() {
        if (next != null) {
            next.onComplete();
        }
    }

    public void onReady() {
        if (next != null) {
            next.onReady();
        }
    }
}

/** Of the JDBC server, whose own ones open Hive's metastore. It decides nothing: the rules above do. */
public final class NoMetastore implements HiveAuthorizationProvider {
    private Configuration conf;
    private HiveAuthenticationProvider authenticator;

    public NoMetastore() {}

    public void init(Configuration conf) {}

    public Configuration getConf() {
        return conf;
    }

    public void setConf(Configuration conf) {
        this.conf = conf;
    }

    public HiveAuthenticationProvider getAuthenticator() {
        return authenticator;
    }

    public void setAuthenticator(HiveAuthenticationProvider authenticator) {
        this.authenticator = authenticator;
    }

    public void authorize(Privilege[] reads, Privilege[] writes) {}

    public void authorize(Database database, Privilege[] reads, Privilege[] writes) {}

    public void authorize(Table table, Privilege[] reads, Privilege[] writes) {}

    public void authorize(Partition partition, Privilege[] reads, Privilege[] writes) {}

    public void authorize(Table table, Partition partition, List columns, Privilege[] reads, Privilege[] writes) {}
}
