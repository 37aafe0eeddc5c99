#include "tasks/job.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "run/from_recipe.h"
#include "tasks/task_def.h"
#include "temporary_folder.h"
#include "tiny_language_model.h"

namespace hearth::tasks {
namespace {

using testing::HasSubstr;

class JobTest : public testing::Test {
 protected:
  JobTest() {
    write_tiny_model(model());
    write_file_atomically(folder_.path() / "text.txt", std::string(4000, 'a'));
  }
  fs::path model() const { return folder_.path() / "model"; }
  recipe::Recipe recipe() const {
    return run::parse_recipe("data: {context: 16}\ntrain: {batch: 1}", "a test",
                             std::vector<std::string>{"model=" + model().string(),
                                                      "data=" + (folder_.path() / "text.txt").string(),
                                                      "data.cache=" + (folder_.path() / "cache").string()});
  }
  TemporaryFolder folder_;
};

TEST_F(JobTest, ReadsConfigJsonOnce) {
  const Job job(recipe());
  const std::string before = job.config_json;
  write_file_atomically(model() / "config.json", "{}");
  const auto task = task_of(job.recipe).open(job, 0);
  EXPECT_GT(task->num_rows(), 0);
  EXPECT_NE(run::engine_options(job).objective, nullptr);
  // The run's folder gets the configuration that the job was made with.
  const fs::path run = folder_.path() / "run";
  fs::create_directory(run);
  task->save_companions(run, DType::f32);
  EXPECT_THAT(read_file(run / "config.json"), HasSubstr("\"hidden_size\""));
  EXPECT_THAT(before, HasSubstr("\"hidden_size\""));
}

TEST_F(JobTest, NamesAMissingConfig) {
  fs::remove(model() / "config.json");
  try {
    const Job job(recipe());
    FAIL() << "a model without config.json was accepted";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr((model() / "config.json").string()));
  }
}

}  // namespace
}  // namespace hearth::tasks
