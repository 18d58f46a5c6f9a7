import java.util.Collections;
import java.util.Map;
import org.apache.kafka.streams.errors.TaskAssignmentException;
import org.apache.kafka.streams.processor.assignment.ApplicationState;
import org.apache.kafka.streams.processor.assignment.TaskAssignor;

/** Assigns nothing: the property "failure" is how. */
public class FailingAssignor implements TaskAssignor {
    private String failure;

    @Override
    public void configure(Map<String, ?> configs) {
        failure = (String) configs.get("failure");
    }

    @Override
    public TaskAssignment assign(ApplicationState applicationState) {
        switch (failure) {
            case "raise": throw new IllegalStateException("no idea");
            case "refuse": throw new TaskAssignmentException("too few large machines");
            default: return new TaskAssignment(Collections.emptyList());
        }
    }
}
