#include "loggers/mlflow.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/run_files.h"
#include "base/text.h"
#include "base/version.h"
#include "io/run_log.h"
#include "loggers/rest.h"
#include "text/base64.h"

namespace hearth::loggers {
namespace {

using Json = nlohmann::json;

constexpr const char* kApi = "/api/2.0/mlflow/";
/// Max parameters of a request, and max bytes of a parameter's value. Every version of MLflow accepts these.
constexpr size_t kMaxParameters = 100, kMaxValueBytes = 500;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string server_url() {
  std::string url = variable("MLFLOW_TRACKING_URI");
  while (url.ends_with('/')) url.pop_back();
  return url;
}

std::vector<net::Header> credentials() {
  const std::string user = variable("MLFLOW_TRACKING_USERNAME"), token = variable("MLFLOW_TRACKING_TOKEN");
  if (!user.empty())
    return {{"Authorization", "Basic " + text::to_base64(user + ":" + variable("MLFLOW_TRACKING_PASSWORD"))}};
  if (!token.empty()) return {{"Authorization", "Bearer " + token}};
  return {};
}

int64_t now_ms() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

/// Returns the name of a metric in MLflow, where the sensors of GPUs are system metrics.
std::string metric_name(const std::string& name) { return name.starts_with("gpu") ? "system/" + name : name; }

class MlflowLogger : public Logger {
 public:
  MlflowLogger() : client_(*this, server_url(), credentials()) {}

  std::string open(const RunInfo& run) override {
    run_ = run;
    if (!run.id.empty() && continue_run(run.id)) return id_;
    create_run();
    return id_;
  }
  void send(const Batch& batch) override;
  void finish(const RunEnd& end) override;

 private:
  bool continue_run(const std::string& id);
  void create_run();
  std::string experiment_id();
  void use(const Json& run);
  void log_parameters();
  void put_artifact(const std::string& name, const fs::path& file, const std::string& body = "");
  Json call(const char* method, const std::string& function, const Json& body) {
    return client_.call(method, kApi + function, body);
  }

  RestClient client_;
  RunInfo run_;
  std::string id_;
  /// Path of the run's artifacts in the server's proxy; empty if the server has no proxy for artifacts.
  std::string artifacts_;
};

/// Continues a run of an earlier session. Returns false if the server does not have the run, or the run was
/// deleted there.
bool MlflowLogger::continue_run(const std::string& id) {
  const net::HttpResponse found =
      client_.send("GET", fmt::format("{}runs/get?run_id={}", kApi, net::url_encoded(id)), {});
  if (found.status == 404) return false;
  client_.check(found);
  const Json run = parse_json_object<Json>(found.body, "the response of MLflow").at("run");
  if (run.at("info").at("lifecycle_stage") == "deleted") return false;
  use(run);
  call("POST", "runs/update", {{"run_id", id_}, {"status", "RUNNING"}});
  return true;
}

void MlflowLogger::create_run() {
  const char* const user = std::getenv("USER");
  const Json tags = {{{"key", "mlflow.user"}, {"value", user == nullptr ? "" : user}},
                     {{"key", "mlflow.source.type"}, {"value", "LOCAL"}},
                     {{"key", "mlflow.source.name"}, {"value", "hearth"}},
                     {{"key", "hearth.version"}, {"value", kVersion}},
                     {{"key", "hearth.run_folder"}, {"value", fs::absolute(run_.folder).string()}}};
  use(call("POST", "runs/create",
           {{"experiment_id", experiment_id()},
            {"run_name", run_.name},
            {"start_time", now_ms()},
            {"tags", tags}})
          .at("run"));
  log_parameters();
}

/// Returns the id of the experiment. Creates the experiment if it does not exist.
std::string MlflowLogger::experiment_id() {
  std::string name = run_.project.empty() ? variable("MLFLOW_EXPERIMENT_NAME") : run_.project;
  if (name.empty()) name = "hearth";
  const net::HttpResponse found = client_.send(
      "GET", fmt::format("{}experiments/get-by-name?experiment_name={}", kApi, net::url_encoded(name)), {});
  if (found.status == 404) return call("POST", "experiments/create", {{"name", name}}).at("experiment_id");
  client_.check(found);
  return parse_json_object<Json>(found.body, "the response of MLflow").at("experiment").at("experiment_id");
}

/// Stores the id and the path of artifacts of a run.
void MlflowLogger::use(const Json& run) {
  id_ = run.at("info").at("run_id");
  // If the URI has no host (mlflow-artifacts:/1/ID/artifacts), the proxy is the tracking server.
  constexpr std::string_view kProxy = "mlflow-artifacts:/";
  const std::string uri = run.at("info").at("artifact_uri");
  const bool has_proxy = uri.starts_with(kProxy) && !uri.starts_with("mlflow-artifacts://");
  artifacts_ = has_proxy ? uri.substr(kProxy.size()) : "";
}

void MlflowLogger::log_parameters() {
  for (size_t begin = 0; begin < run_.config.size(); begin += kMaxParameters) {
    Json parameters = Json::array();
    for (size_t i = begin; i < std::min(run_.config.size(), begin + kMaxParameters); ++i) {
      const auto& [key, value] = run_.config[i];
      parameters.push_back({{"key", key}, {"value", shortened(value, kMaxValueBytes)}});
    }
    call("POST", "runs/log-batch", {{"run_id", id_}, {"params", parameters}});
  }
}

void MlflowLogger::put_artifact(const std::string& name, const fs::path& file, const std::string& body) {
  if (artifacts_.empty()) return;
  client_.put(
      fmt::format("/api/2.0/mlflow-artifacts/artifacts/{}/{}", net::url_encoded(artifacts_, true), name),
      file, body);
}

void MlflowLogger::send(const Batch& batch) {
  // Sending an image again replaces it, but sending a metric again adds a point, so metrics are last.
  for (const Image& image : batch.images)
    put_artifact(fmt::format("{}/{}", io::kSamplesFolder, net::url_encoded(image.file.filename().string())),
                 image.file);
  Json metrics = Json::array();
  for (const Row& row : batch.rows)
    for (const auto& [name, value] : row.metrics)
      metrics.push_back({{"key", metric_name(name)},
                         {"value", value},
                         {"timestamp", static_cast<int64_t>(1000 * row.time)},
                         {"step", row.step}});
  call("POST", "runs/log-batch", {{"run_id", id_}, {"metrics", metrics}});
}

void MlflowLogger::finish(const RunEnd& end) {
  put_artifact(kRunRecipe, "", run_.recipe);
  for (const char* name : kFinalFiles)
    if (path_exists(run_.folder / name)) put_artifact(name, run_.folder / name);
  const char* const status = end.state == EndState::done          ? "FINISHED"
                             : end.state == EndState::interrupted ? "KILLED"
                                                                  : "FAILED";
  call("POST", "runs/update", {{"run_id", id_}, {"status", status}, {"end_time", now_ms()}});
}

}  // namespace

std::unique_ptr<Logger> open_mlflow() { return std::make_unique<MlflowLogger>(); }

void check_mlflow() {
  if (!net::url_origin(server_url()).empty()) return;
  user_error(
      "log.to has mlflow, but MLFLOW_TRACKING_URI is '{}'; start a server (mlflow server) and set the "
      "variable to its URL, such as http://127.0.0.1:5000",
      server_url());
}

}  // namespace hearth::loggers
