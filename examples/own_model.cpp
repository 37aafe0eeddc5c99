// A model of one's own, trained on images that are generated: own_model [WEIGHTS.safetensors]
#include <array>
#include <cstdio>
#include <exception>

#include "data/shapes.h"
#include "hub/weights.h"
#include "recipe/recipe.h"
#include "run/schedule.h"
#include "tasks/classify/classifier.h"
#include "tasks/loader_stream.h"

using namespace hearth;

ir::ValueId conv(nn::Builder& builder, const char* name, ir::ValueId in, int64_t channels) {
  const nn::Builder::Scope scope(builder, name);
  return builder.batch_norm("norm", builder.conv("conv", in, {.out_channels = channels}));
}

/// A convolution, a residual block at half the side, a convolution at a quarter, one class per shape.
ir::ValueId my_model(nn::Builder& builder, ir::ValueId images) {
  ir::ValueId x = builder.max_pool(builder.relu(conv(builder, "stem", images, 32)), 2, 2);
  x = builder.relu(builder.add(x, conv(builder, "block", x, 32)));
  x = builder.relu(conv(builder, "last", builder.max_pool(x, 2, 2), 64));
  return builder.linear("classes", builder.global_avg_pool(x), data::kNumShapes);
}

void train(const char* weights) {
  constexpr int64_t kBatch = 50, kSteps = 500, kUnseen = 500;
  const std::array sizes{kBatch};
  const auto objective = tasks::classifier({.model = {.image_size = 24}, .build_model = my_model});
  engine::Engine engine({.objective = objective, .num_threads = num_available_cpus()}, sizes, sizes);
  engine.initialize();
  const auto images = data::open_dataset({.image_size = 24, .count = 8000});
  const data::ImageRows rows(*images, {.augment = {.flip = true}});
  tasks::LoaderStream stream(rows, {.batch = kBatch});
  const auto next = [&] { return stream.next(); };
  for (int64_t step = 0; step < kSteps; ++step) {
    const double rate = run::learning_rate({.name = recipe::ScheduleKind::onecycle}, 0.1, step, kSteps);
    const engine::StepResult result = engine.train_step(1, kBatch, next, step, rate);
    if (step % 100 == 99) std::printf("step %3ld: loss %.3f\n", static_cast<long>(step + 1), result.loss);
  }
  const auto unseen = data::open_dataset({.split = "test", .image_size = 24, .count = kUnseen});
  const data::ImageRows unseen_rows(*unseen, {});
  tasks::LoaderStream test(unseen_rows, {.batch = kBatch, .shuffle = false});
  double correct = 0;
  for (int64_t i = 0; i < kUnseen; i += kBatch) {
    engine.evaluate(test.next());
    correct += engine.output(tasks::kCorrect)[0];
  }
  std::printf("%.1f%% of %ld unseen images\n", 100 * correct / kUnseen, static_cast<long>(kUnseen));
  hub::save_weights(engine, weights, false);
}

int main(int argc, char** argv) try {
  train(argc > 1 ? argv[1] : "own_model.safetensors");
} catch (const std::exception& error) {
  return std::fprintf(stderr, "own_model: %s\n", error.what()), 2;
}
