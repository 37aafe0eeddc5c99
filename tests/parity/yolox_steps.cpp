// Trains YOLOX for yolox.py: yolox_steps SIZE FOLDER RATE. FOLDER has init.safetensors (weights) and
// batches.safetensors, images f32 [S, N, H, W, 3], targets f32 [S, N, M, 5], l1_weight f32 [S, N] and
// classes, whose number of elements is that of classes. It gets found.safetensors: what is decoded of the
// first batch, each gradient of its loss, and the losses of S steps of SGD.
#include <fmt/format.h>

#include "base/error.h"
#include "engine/inspect.h"
#include "hub/weights.h"
#include "io/safetensors.h"
#include "tasks/detect/yolox_objective.h"
#include "tensors.h"

namespace {

using namespace hearth;

void run(const char* size, const fs::path& folder, double rate) {
  const io::SafetensorsFile file(folder / "batches.safetensors");
  const GivenTensor images(file, "images"), targets(file, "targets"), weights(file, "l1_weight");
  const int64_t steps = images.shape[0], rows = images.shape[1];
  const int64_t classes = file.find("classes")->shape.num_elements();
  engine::Engine engine({.objective = tasks::yolox_objective({.model = size,
                                                              .num_classes = classes,
                                                              .height = images.shape[2],
                                                              .width = images.shape[3],
                                                              .max_boxes = targets.shape[2]}),
                         .optimizer = {.name = "sgd", .momentum = 0.9, .nesterov = true},
                         .batch = rows,
                         .num_threads = 2,
                         // As in parity.py: Winograd rounds too coarsely for gradients.
                         .winograd = false},
                        std::vector{rows}, std::vector{rows});
  engine.initialize();
  hub::load_weights(engine, folder / "init.safetensors");
  const auto batch = [&](int64_t at) {
    return engine::MicroBatch{
        {{"images", images.step(at)}, {"targets", targets.step(at)}, {"l1_weight", weights.step(at)}}, rows};
  };
  Found found;
  found.add("loss", {},
            std::vector{static_cast<float>(engine.evaluate(batch(0)) / static_cast<double>(rows))});
  const std::span<const float> decoded = engine.output(tasks::kDecoded);
  found.add("decoded", {rows, std::ssize(decoded) / (rows * (5 + classes)), 5 + classes}, decoded);
  engine::Inspector(engine).gradients(
      batch(0), rows, [&](const nn::Tensor& tensor, std::span<const float> values) {
        found.add("gradient." + tensor.name, tensor.layout.file_shape, values);
      });
  std::vector<float> losses;
  for (int64_t step = 0; step < steps; ++step) {
    const auto next = [&] { return batch(step); };
    losses.push_back(static_cast<float>(engine.train_step(1, rows, next, step, rate).loss));
  }
  found.add("losses", {steps}, losses);
  found.write(folder);
}

}  // namespace

int main(int, char** argv) {
  try {
    run(argv[1], argv[2], std::stod(argv[3]));
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
