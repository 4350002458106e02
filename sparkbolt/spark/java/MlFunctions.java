package sparkbolt;

import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.analysis.FunctionRegistry$;
import org.apache.spark.sql.catalyst.analysis.SimpleFunctionRegistry;
import org.apache.spark.sql.catalyst.expressions.ExpressionInfo;
import scala.Function1;
import scala.runtime.AbstractFunction1;

/**
 * Stands in for a function of Spark's machine learning until somebody asks for it: then Spark registers all of them, as
 * it does by itself when a session is made.
 *
 * sparkbolt-jvm.jar beside this file is made of it by scripts/jar, with the compiler that Spark brings (Janino, which
 * knows neither lambdas nor variable arguments).
 */
public class MlFunctions extends AbstractFunction1 {
    private static final String SPARKS = "org.apache.spark.sql.ml.InternalFunctionRegistration$";
    private static final String[] NAMES = {"vector_to_array", "array_to_vector", "aggregate_metrics"};

    private final FunctionIdentifier name;

    private MlFunctions(FunctionIdentifier name) {
        this.name = name;
    }

    /** Register a stand-in for each function that is not registered. */
    public static void defer() {
        SimpleFunctionRegistry registry = FunctionRegistry$.MODULE$.internal();
        for (int place = 0; place < NAMES.length; place++) {
            FunctionIdentifier name = new FunctionIdentifier(NAMES[place]);
            if (!registry.functionExists(name)) {
                registry.registerFunction(
                    name, new ExpressionInfo(MlFunctions.class.getName(), NAMES[place]), new MlFunctions(name));
            }
        }
    }

    @Override
    public Object apply(Object arguments) {
        SimpleFunctionRegistry registry = FunctionRegistry$.MODULE$.internal();
        try {
            Class.forName(SPARKS, true, FunctionRegistry$.class.getClassLoader());
        } catch (ClassNotFoundException error) {
            throw new IllegalStateException("this Spark has no functions for machine learning", error);
        }
        Function1 function = (Function1) registry.lookupFunctionBuilder(name).get();
        if (function == this) {
            throw new IllegalStateException("Spark has not registered " + name);
        }
        return function.apply(arguments);
    }
}
