#include "loggers/mlflow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "net/local_server.h"
#include "temporary_folder.h"

namespace hearth::loggers {
namespace {

using testing::HasSubstr;

/// Answers as an MLflow server that has no experiment and no run yet, and does not find the run "lost".
std::string answer(const std::string& request) {
  const std::string path = request.substr(0, request.find(" HTTP"));
  if (path.find("experiments/get-by-name") != path.npos || path.find("run_id=lost") != path.npos)
    return http_response("404 Not Found", "",
                         R"({"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no"})");
  if (path.ends_with("experiments/create")) return http_response("200 OK", "", R"({"experiment_id": "5"})");
  const char* const run =
      R"({"run": {"info": {"run_id": "r1", "lifecycle_stage": "active", "artifact_uri": "mlflow-artifacts:/5/r1/artifacts"}}})";
  return http_response("200 OK", "", path.find("/runs/") != path.npos ? run : "{}");
}

/// Returns the method and path of each request.
std::vector<std::string> heads_of(LocalServer& server) {
  std::vector<std::string> heads;
  for (const std::string& request : server.requests())
    heads.push_back(request.substr(0, request.find(" HTTP")));
  return heads;
}

nlohmann::json body_of(const std::string& request) {
  return nlohmann::json::parse(request.substr(request.find("\r\n\r\n") + 4));
}

TEST(Mlflow, SendsARunWithItsImages) {
  LocalServer server(answer);
  setenv("MLFLOW_TRACKING_URI", server.url().c_str(), 1);
  setenv("MLFLOW_TRACKING_USERNAME", "me", 1);
  setenv("MLFLOW_TRACKING_PASSWORD", "secret", 1);
  const TemporaryFolder folder;
  const fs::path image = folder.path() / "step-000002-a b.png";
  write_file_atomically(image, "PNG bytes");
  RunInfo run{.folder = folder.path(),
              .project = "my project",
              .name = "one",
              .config = {},
              .recipe = "a: 1\n",
              .id = "lost"};
  for (int i = 0; i < 150; ++i) run.config.emplace_back("key" + std::to_string(i), std::string(1000, 'x'));
  const std::unique_ptr<Logger> logger = open_mlflow();
  EXPECT_EQ(logger->open(run), "r1");
  logger->send({.rows = {{.step = 2,
                          .time = 1.5,
                          .metrics = {{"eval/loss", 0.25}, {"gpu0/power_w", 90}},
                          .is_evaluation = true}},
                .images = {{.step = 2, .name = "a b", .file = image}}});
  logger->finish({EndState::interrupted, ""});
  const std::vector<std::string> heads = heads_of(server);
  EXPECT_THAT(heads,
              testing::ElementsAre(
                  "GET /api/2.0/mlflow/runs/get?run_id=lost",
                  "GET /api/2.0/mlflow/experiments/get-by-name?experiment_name=my%20project",
                  "POST /api/2.0/mlflow/experiments/create", "POST /api/2.0/mlflow/runs/create",
                  "POST /api/2.0/mlflow/runs/log-batch", "POST /api/2.0/mlflow/runs/log-batch",
                  "PUT /api/2.0/mlflow-artifacts/artifacts/5/r1/artifacts/samples/step-000002-a%20b.png",
                  "POST /api/2.0/mlflow/runs/log-batch",
                  "PUT /api/2.0/mlflow-artifacts/artifacts/5/r1/artifacts/config.yaml",
                  "POST /api/2.0/mlflow/runs/update"));
  const std::vector<std::string> requests = server.requests();
  for (const std::string& request : requests)
    EXPECT_THAT(request, HasSubstr("Authorization: Basic bWU6c2VjcmV0\r\n"));
  EXPECT_EQ(body_of(requests[3]).at("run_name"), "one");
  EXPECT_EQ(body_of(requests[4]).at("params").size(), 100U);
  EXPECT_EQ(body_of(requests[5]).at("params").size(), 50U);
  EXPECT_LE(body_of(requests[5]).at("params")[0].at("value").get<std::string>().size(), 500U);
  EXPECT_THAT(requests[6], HasSubstr("\r\n\r\nPNG bytes"));
  const nlohmann::json metrics = {
      {{"key", "eval/loss"}, {"value", 0.25}, {"timestamp", 1500}, {"step", 2}},
      {{"key", "system/gpu0/power_w"}, {"value", 90.0}, {"timestamp", 1500}, {"step", 2}}};
  EXPECT_EQ(body_of(requests[7]).at("metrics"), metrics);
  EXPECT_EQ(body_of(requests[9]).at("status"), "KILLED");
}

}  // namespace
}  // namespace hearth::loggers
