#pragma once

#include <memory>
#include <string>

#include "loggers/logger.h"

namespace hearth::loggers {

/// Returns the URL for a value of the key log.webhook: the value, or for env:NAME the value of the
/// environment variable NAME. Throws a UserError if the variable is not set or is not a URL.
std::string webhook_url(const std::string& value);

/// Opens a logger that posts a JSON object to `url` for the start and the end of a run, each failure of a
/// worker, and evaluations with a better score (docs/loggers.md).
std::unique_ptr<Logger> open_webhook(const std::string& url);

}  // namespace hearth::loggers
