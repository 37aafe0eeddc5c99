#include "recipe/log_keys.h"

#include "base/error.h"
#include "recipe/field_kinds.h"

namespace hearth::recipe {

void add_log_fields(std::vector<Field>& fields) {
  const auto key = section(fields, "log", &Recipe::log);
  key("to",
      "Loggers that receive the metrics, in addition to trainer_log.jsonl: tensorboard, csv (metrics.csv in "
      "the run folder), mlflow, wandb, trackio; jsonl or []: no others",
      &Log::to);
  key("webhook",
      "URL to which start, end, crashes and better scores of the run are posted as JSON, or env:NAME for a "
      "URL in an environment variable; empty: none",
      &Log::webhook);
  key("project",
      "mlflow: name of the experiment; wandb, trackio: name of the project. Empty: MLFLOW_EXPERIMENT_NAME, "
      "WANDB_PROJECT or TRACKIO_PROJECT, otherwise hearth",
      &Log::project);
  key("name", "Name of the run in mlflow, wandb, trackio and messages; empty: the name of the run folder",
      &Log::name);
}

void check_log(const Recipe& recipe, const KeyLocations& locations) {
  const std::string& url = recipe.log.webhook;
  for (const char* prefix : {"http://", "https://", "env:"})
    if (url.empty() || (url.starts_with(prefix) && url != prefix)) return;
  user_error(
      "{}: log.webhook is no URL; set log.webhook=https://HOST/PATH, or log.webhook=env:NAME and the "
      "environment variable NAME",
      locations.of("log.webhook"));
}

}  // namespace hearth::recipe
