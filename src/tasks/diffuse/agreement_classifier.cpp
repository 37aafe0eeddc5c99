#include "tasks/diffuse/agreement_classifier.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "tasks/classify/classifier.h"
#include "tasks/loader_stream.h"

namespace hearth::tasks {
namespace {

constexpr int64_t kBatch = AgreementClassifier::kMinImages;
/// Max number of training images, the size of MNIST.
constexpr int64_t kMaxImages = 60000;
constexpr double kRate = 0.004;

engine::EngineOptions options_for(const data::Dataset& train, uint64_t seed, int num_threads) {
  const models::ModelOptions model{.name = "smallcnn",
                                   .num_classes = std::ssize(train.class_names()),
                                   .channels = train.channels(),
                                   .image_size = train.image_size()};
  return {.objective = classifier({.model = model}),
          .optimizer = {.name = "adamw"},
          .batch = kBatch,
          .seed = seed,
          .num_threads = num_threads};
}

}  // namespace

struct AgreementClassifier::State {
  engine::EngineOptions options;
  engine::Engine engine;
  Extent size;
  int64_t channels, num_classes;

  State(const data::Dataset& train, uint64_t seed, int num_threads)
      : options(options_for(train, seed, num_threads)),
        engine(options, std::array{kBatch}, std::array{kBatch}),
        size(train.image_size()),
        channels(train.channels()),
        num_classes(std::ssize(train.class_names())) {}

  void train(const data::Dataset& dataset) {
    const data::ImageRows rows(dataset, {});
    LoaderStream stream(rows, {.batch = kBatch, .seed = options.seed});
    const int64_t steps = std::max<int64_t>(1, std::min(kMaxImages, dataset.size()) / kBatch);
    engine.initialize();
    for (int64_t step = 0; step < steps;) {
      const engine::MicroBatch batch = stream.next();
      // Skips a smaller last batch: the engine is compiled for kBatch rows.
      if (batch.num_rows < kBatch) continue;
      const double part = static_cast<double>(step) / static_cast<double>(steps);
      engine.train_step(
          1, kBatch, [&] { return batch; }, step, kRate * std::cos(1.5 * part));
      ++step;
    }
  }
};

AgreementClassifier::AgreementClassifier(const data::Dataset& train, uint64_t seed, int num_threads)
    : state_(std::make_unique<State>(train, seed, num_threads)) {
  HEARTH_CHECK(train.size() >= kMinImages);
  state_->train(train);
}

AgreementClassifier::~AgreementClassifier() = default;

std::vector<int32_t> AgreementClassifier::classes(std::span<const data::Image> generated) const {
  const auto num_values = static_cast<size_t>(state_->size.num_pixels() * state_->channels);
  constexpr size_t kSlack = engine::kInputSlack / sizeof(float);
  std::vector<float> images(static_cast<size_t>(kBatch) * num_values + kSlack);
  const std::vector<int32_t> labels(static_cast<size_t>(kBatch) + kSlack);
  std::vector<int32_t> found;
  for (size_t begin = 0; begin < generated.size(); begin += kBatch) {
    const auto some = generated.subspan(begin, std::min<size_t>(kBatch, generated.size() - begin));
    for (size_t i = 0; i < some.size(); ++i) {
      const data::Image seen = data::resize(data::convert(some[i], state_->channels), state_->size);
      std::ranges::transform(seen.pixels, images.begin() + static_cast<std::ptrdiff_t>(i * num_values),
                             [](uint8_t level) { return static_cast<float>(level) / 127.5F - 1; });
    }
    state_->engine.evaluate({{{"images", images.data()}, {"labels", labels.data()}}, kBatch});
    const std::span<const float> shares = state_->engine.output(kProbabilities);
    for (size_t i = 0; i < some.size(); ++i) {
      const auto row = shares.subspan(i * static_cast<size_t>(state_->num_classes),
                                      static_cast<size_t>(state_->num_classes));
      found.push_back(static_cast<int32_t>(std::ranges::max_element(row) - row.begin()));
    }
  }
  return found;
}

}  // namespace hearth::tasks
