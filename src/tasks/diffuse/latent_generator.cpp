#include "tasks/diffuse/latent_generator.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace hearth::tasks {

LatentGenerator::LatentGenerator(engine::Engine& engine, const Noising& noising,
                                 LatentGeneratorOptions options)
    : engine_(engine),
      noising_(noising),
      options_(std::move(options)),
      formats_(options_.format.arrays(options_.latents)),
      batch_({}, options_.batch, options_.row_length) {
  for (size_t i = 0; i < arrays_.size() && formats_[i].name != nullptr; ++i) {
    arrays_[i].resize(static_cast<size_t>(formats_[i].row_bytes * options_.batch + engine::kInputSlack));
    batch_.add({formats_[i].name, arrays_[i].data()});
  }
}

void LatentGenerator::fill(int64_t row, const Condition& condition) {
  const auto at = [&](size_t array) { return arrays_[array].data() + row * formats_[array].row_bytes; };
  if (options_.format.has_labels()) {
    std::memcpy(at(DenoiseArray::label), &condition.label, sizeof condition.label);
    return;
  }
  HEARTH_CHECK(std::ssize(condition.text) == options_.format.text_size());
  HEARTH_CHECK(std::ssize(condition.pooled) == options_.format.pooled_size());
  std::ranges::copy(std::as_bytes(std::span(condition.text)), at(DenoiseArray::text));
  std::ranges::copy(std::as_bytes(std::span(condition.pooled)), at(DenoiseArray::pooled));
}

/// Fills unused rows of the batch with the last condition.
void LatentGenerator::fill(std::span<const Condition> conditions) {
  for (int64_t row = 0; row < options_.batch; ++row)
    fill(row, conditions[std::min(static_cast<size_t>(row), conditions.size() - 1)]);
}

std::span<const float> LatentGenerator::evaluate(std::span<const float> x, double time) {
  std::ranges::copy(std::as_bytes(x), arrays_[DenoiseArray::tokens].begin());
  const DenoiseSettings settings{.time = static_cast<float>(time),
                                 .guidance = static_cast<float>(options_.guidance)};
  for (int64_t row = 0; row < options_.batch; ++row)
    std::memcpy(arrays_[DenoiseArray::settings].data() + row * formats_[DenoiseArray::settings].row_bytes,
                &settings, sizeof settings);
  engine_.evaluate(batch_);
  return engine_.output(0);
}

std::vector<std::vector<float>> LatentGenerator::make(std::span<const Condition> conditions, uint64_t seed,
                                                      uint64_t first) {
  const models::DenoiserConfig& model = options_.format.model;
  const auto count = static_cast<size_t>(model.channels * options_.latents.num_pixels());
  const auto batch = static_cast<size_t>(options_.batch);
  std::vector<std::vector<float>> made;
  std::vector<float> x(batch * count), latents(count);
  for (size_t begin = 0; begin < conditions.size(); begin += batch) {
    const auto requested = conditions.subspan(begin, std::min(batch, conditions.size() - begin));
    std::ranges::fill(x, 0.0F);
    for (size_t i = 0; i < requested.size(); ++i) {
      draw_noise(seed, first + begin + i, latents);
      data::to_tokens(latents, model.channels, options_.latents, model.patch,
                      std::span(x).subspan(i * count, count));
    }
    fill(requested);
    const auto denoise = [&](std::span<const float> noisy, double time, std::span<float> prediction) {
      std::ranges::copy(evaluate(noisy, time), prediction.begin());
      if (!options_.compares()) return;
      fill(std::span(&options_.unconditional, 1));
      const std::span<const float> plain = evaluate(noisy, time);
      const auto share = static_cast<float>(options_.guidance);
      for (size_t i = 0; i < prediction.size(); ++i)
        prediction[i] = plain[i] + share * (prediction[i] - plain[i]);
      fill(requested);
    };
    sample(noising_, options_.sampler, denoise, x);
    for (size_t i = 0; i < requested.size(); ++i) {
      data::from_tokens(std::span(x).subspan(i * count, count), model.channels, options_.latents, model.patch,
                        latents);
      made.push_back(latents);
    }
  }
  return made;
}

}  // namespace hearth::tasks
