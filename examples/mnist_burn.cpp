// Scores weights that PyTorch trained and the safetensors package wrote, here those of burn's MNIST example:
// mnist_burn WEIGHTS.safetensors FOLDER_WITH_MNIST
#include <array>
#include <cstdio>
#include <exception>

#include "hub/weights.h"
#include "tasks/classify/classifier.h"
#include "tasks/loader_stream.h"

using namespace hearth;

/// The layers under the names that the file gives them.
ir::ValueId mnist_model(nn::Builder& builder, ir::ValueId images) {
  ir::ValueId x = images;
  x = builder.relu(builder.conv("conv1", x, {.out_channels = 8, .padding = 0, .bias = true}));
  x = builder.relu(builder.conv("conv2", x, {.out_channels = 16, .padding = 0, .bias = true}));
  x = builder.relu(builder.conv("conv3", x, {.out_channels = 24, .padding = 0, .bias = true}));
  x = builder.batch_norm("norm1", x);
  x = builder.relu(builder.linear("fc1", builder.flatten(x), 32));
  return builder.batch_norm("norm2", builder.linear("fc2", x, 10));
}

void score(const char* weights, const char* mnist) {
  constexpr int64_t kBatch = 100;
  const std::array sizes{kBatch};
  const auto objective =
      tasks::classifier({.model = {.channels = 1, .image_size = 28}, .build_model = mnist_model});
  engine::Engine engine({.objective = objective, .num_threads = num_available_cpus()}, {}, sizes);
  hub::load_weights(engine, weights);
  const auto digits = data::open_dataset({.kind = "idx", .path = mnist, .split = "test"});
  const data::ImageRows rows(*digits, {.mean = {0.1307F}, .std = {0.3081F}});
  tasks::LoaderStream stream(rows, {.batch = kBatch, .shuffle = false});
  double correct = 0;
  for (int64_t i = 0; i < digits->size(); i += kBatch) {
    engine.evaluate(stream.next());
    correct += engine.output(tasks::kCorrect)[0];
  }
  std::printf("%.0f/%ld\n", correct, static_cast<long>(digits->size()));
}

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::fprintf(stderr, "usage: mnist_burn WEIGHTS.safetensors FOLDER_WITH_MNIST\n");
    return 2;
  }
  score(argv[1], argv[2]);
} catch (const std::exception& error) {
  std::fprintf(stderr, "mnist_burn: %s\n", error.what());
  return 2;
}
