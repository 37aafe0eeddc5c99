#include "infer/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>

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
  if (options_.temperature == 0 && options_.repetition_penalty == 1 && options_.presence_penalty == 0 &&
      options_.frequency_penalty == 0 && options_.logit_bias.empty())
    return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
  candidates_.clear();
  for (const float logit : logits) candidates_.push_back({logit, static_cast<int32_t>(candidates_.size())});
  if (options_.repetition_penalty != 1) penalize(so_far);
  const auto add = [&](int32_t id, double value) {
    if (id >= 0 && id < std::ssize(candidates_))
      candidates_[static_cast<size_t>(id)].logit += static_cast<float>(value);
  };
  for (const auto& [id, count] : counts_)
    add(id, -options_.presence_penalty - options_.frequency_penalty * static_cast<double>(count));
  for (const auto& [id, bias] : options_.logit_bias) add(id, bias);
  const int32_t id = choose();
  ++counts_[id];
  return id;
}

int32_t Sampler::choose() {
  const auto likelier = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  if (options_.temperature == 0)
    return std::min_element(candidates_.begin(), candidates_.end(), likelier)->id;
  const auto kept =
      options_.top_k > 0 ? std::min(options_.top_k, std::ssize(candidates_)) : std::ssize(candidates_);
  if (kept == std::ssize(candidates_)) {
    sort_all();
  } else {
    std::partial_sort(candidates_.begin(), candidates_.begin() + kept, candidates_.end(), likelier);
    candidates_.resize(static_cast<size_t>(kept));
  }
  return draw();
}

/// Sorts the candidates, which are in the order of their ids, by descending logit: a radix sort by 11 bits at
/// a time, which keeps the order of equal logits and takes less time than std::sort.
void Sampler::sort_all() {
  constexpr int kBits = 11;
  const auto key_of = [](float logit) {
    const auto bits = std::bit_cast<uint32_t>(logit + 0.0F);  // the sum turns -0 into 0
    return bits >> 31 != 0 ? bits : ~(bits | 0x80000000U);
  };
  sorted_.resize(candidates_.size());
  for (int shift = 0; shift < 32; shift += kBits) {
    const auto digit_of = [&](const Candidate& c) { return key_of(c.logit) >> shift & ((1U << kBits) - 1); };
    std::array<uint32_t, (1U << kBits) + 1> begins = {};
    for (const Candidate& c : candidates_) ++begins[digit_of(c) + 1];
    std::partial_sum(begins.begin(), begins.end(), begins.begin());
    for (const Candidate& c : candidates_) sorted_[begins[digit_of(c)]++] = c;
    candidates_.swap(sorted_);
  }
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
  const auto is_kept = [&](double share) { return kept < options_.top_p * all && share >= options_.min_p; };
  while (count < shares_.size() && (count == 0 || is_kept(shares_[count]))) kept += shares_[count++];
  PhiloxSequence random(options_.seed, num_draws_++);
  double left = random.uniform() * kept;
  for (size_t i = 0; i + 1 < count; ++i) {
    if (left < shares_[i]) return candidates_[i].id;
    left -= shares_[i];
  }
  return candidates_[count - 1].id;
}

}  // namespace hearth::infer
