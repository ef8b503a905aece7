"""Validates trajectories, one JSON document a line, with the models of the package atif, and prints what was read."""
import sys

from atif import Trajectory


def print_trajectory(trajectory, indent=""):
    def line(*parts):
        print(indent + " ".join(map(str, parts)))

    agent = trajectory.agent
    line(trajectory.schema_version, agent.name, agent.model_name, len(agent.tool_definitions or ()))
    for step in trajectory.steps:
        text = step.message if isinstance(step.message, str) else [part.type for part in step.message]
        calls = [(call.tool_call_id, call.function_name, call.arguments) for call in step.tool_calls or ()]
        results = [
            (result.source_call_id, result.content, len(result.subagent_trajectory_ref or ()))
            for result in (step.observation.results if step.observation else ())
        ]
        used = step.metrics
        tokens = (used.prompt_tokens, used.completion_tokens, used.cost_usd) if used else None
        line(" ", step.step_id, step.source, ascii(text)[:60], ascii(calls), ascii(results), tokens)
    total = trajectory.final_metrics
    line(" ", total.total_prompt_tokens, total.total_completion_tokens, total.total_cost_usd, total.total_steps)
    for sub in trajectory.subagent_trajectories or ():
        print_trajectory(sub, indent + "    ")


for line in sys.stdin:
    print_trajectory(Trajectory.model_validate_json(line))
