#pragma once

#include <memory>

#include "loggers/logger.h"

namespace hearth::loggers {

/// Opens a logger that sends to an MLflow tracking server through its REST API, version 2.0.
/// MLFLOW_TRACKING_URI is the URL of the server; MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or
/// MLFLOW_TRACKING_TOKEN, are the credentials. Artifacts are sent through the server's proxy
/// (mlflow-artifacts).
std::unique_ptr<Logger> open_mlflow();

/// Throws a UserError if MLFLOW_TRACKING_URI is not the URL of a server.
void check_mlflow();

}  // namespace hearth::loggers
