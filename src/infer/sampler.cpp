#include "infer/sampler.h"

#include <algorithm>
#include <cmath>

#include "base/philox.h"

namespace hearth::infer {

void Sampler::penalize(std::span<const int32_t> so_far) {
  std::vector<int32_t> seen(so_far.begin(), so_far.end());
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  const auto penalty = static_cast<float>(options_.repetition_penalty);
  for (const int32_t id : seen) {
    if (id < 0 || id >= std::ssize(candidates_)) continue;
    float& logit = candidates_[static_cast<size_t>(id)].logit;
    logit = logit > 0 ? logit / penalty : logit * penalty;
  }
}

int32_t Sampler::next(std::span<const float> logits, std::span<const int32_t> so_far) {
  candidates_.clear();
  for (const float logit : logits) candidates_.push_back({logit, static_cast<int32_t>(candidates_.size())});
  if (options_.repetition_penalty != 1) penalize(so_far);
  const auto likelier = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  if (options_.temperature == 0)
    return std::min_element(candidates_.begin(), candidates_.end(), likelier)->id;
  const auto kept =
      options_.top_k > 0 ? std::min(options_.top_k, std::ssize(candidates_)) : std::ssize(candidates_);
  std::partial_sort(candidates_.begin(), candidates_.begin() + kept, candidates_.end(), likelier);
  candidates_.resize(static_cast<size_t>(kept));
  return draw();
}

int32_t Sampler::draw() {
  shares_.clear();
  double all = 0;
  for (const Candidate& c : candidates_) {
    shares_.push_back(std::exp((c.logit - candidates_[0].logit) / options_.temperature));
    all += shares_.back();
  }
  double kept = 0;
  size_t count = 0;
  while (count < shares_.size() && (count == 0 || kept < options_.top_p * all)) kept += shares_[count++];
  PhiloxSequence random(options_.seed, num_draws_++);
  double left = random.uniform() * kept;
  for (size_t i = 0; i + 1 < count; ++i) {
    if (left < shares_[i]) return candidates_[i].id;
    left -= shares_[i];
  }
  return candidates_[count - 1].id;
}

}  // namespace hearth::infer
