// Runs on images that are evaluated and asked for predictions without a Trainer.
#include <gmock/gmock.h>

#include "base/error.h"
#include "data/images/image.h"
#include "hub/weights.h"
#include "run/evaluate_run.h"
#include "run/from_recipe.h"
#include "run/predict_session.h"
#include "run/trainer.h"
#include "temporary_folder.h"

namespace hearth::run {
namespace {

constexpr const char* kMlpRun = R"(
model: {name: mlp, num_classes: 10, hidden: [16]}
data: {kind: shapes, image_size: 8, count: 64, val_count: 20}
train: {steps: 4, batch: 8, accumulate: 2, ema: 0.5}
optimizer: {name: adamw, lr: 0.01}
threads: 2
)";

class RunSessions : public testing::Test {
 protected:
  RunSessions() { Trainer(tasks::Job(parse_recipe(kMlpRun, "test")), run(), {}).run(false); }
  fs::path run() const { return folder_.path() / "run"; }
  recipe::Recipe recipe() const { return load_recipe(run() / "config.yaml"); }
  fs::path image(const char* name, uint8_t value) const {
    const fs::path file = folder_.path() / name;
    write_file_atomically(
        file, data::encode_png(
                  {.height = 8, .width = 8, .channels = 1, .pixels = std::vector<uint8_t>(64, value)}));
    return file;
  }

  TemporaryFolder folder_;
};

TEST_F(RunSessions, EvaluationIsTheTrainersAndWritesNothing) {
  Trainer trainer(tasks::Job(recipe()), run(), {});
  hub::load_weights(trainer.engine(), hub::run_weights(run(), false));
  const tasks::Evaluation wanted = trainer.evaluate();
  const auto files = [&] {
    std::vector<std::pair<fs::path, fs::file_time_type>> found;
    for (const auto& entry : fs::recursive_directory_iterator(run()))
      found.emplace_back(entry.path(), entry.last_write_time());
    return found;
  };
  const auto before = files();
  const WeightsEvaluation found = evaluate_run(recipe(), run(), [](const std::string&) {});
  EXPECT_EQ(found.loss, wanted.loss);
  EXPECT_EQ(found.text, trainer.task().evaluation_text(wanted));
  EXPECT_EQ(found.num_rows, 20);
  EXPECT_EQ(found.weights, run() / "best.safetensors");
  EXPECT_EQ(files(), before);
}

TEST_F(RunSessions, PredictionsNeedNoFilesAfterTheFirst) {
  const fs::path dark = image("dark.png", 10), light = image("light.png", 200);
  PredictSession other(recipe(), run(), {});
  const std::string wanted = other.predict(light);
  PredictSession session(recipe(), run(), {});
  EXPECT_FALSE(session.writes_files());
  EXPECT_THROW(session.predict(folder_.path() / "none.png"), UserError);
  const std::string first = session.predict(dark);
  fs::remove_all(run());
  EXPECT_EQ(session.predict(light), wanted);
  EXPECT_EQ(session.predict(dark), first);
}

}  // namespace
}  // namespace hearth::run
