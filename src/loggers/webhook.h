#pragma once

#include <memory>
#include <string>

#include "loggers/logger.h"

namespace hearth::loggers {

/// Returns the URL of the key log.webhook: the value, or that of an environment variable (env:NAME).
/// UserError if the variable is not set or its value is no URL.
std::string webhook_url(const std::string& value);

/// Opens a webhook: posts a JSON object for the start and the end of a run, each failure of a worker, and
/// each evaluation with a better score (docs/loggers.md).
std::unique_ptr<Logger> open_webhook(const std::string& url);

}  // namespace hearth::loggers
