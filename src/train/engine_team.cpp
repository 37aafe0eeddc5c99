#include <algorithm>
#include <bit>
#include <chrono>

#include "base/error.h"
#include "train/engine.h"

namespace hearth::train {

void Engine::add_levels() {
  HEARTH_CHECK(options_.accumulate % options_.shards == 0 && options_.shards % options_.num_workers == 0);
  const auto own = static_cast<uint64_t>(num_own_shards());
  HEARTH_CHECK(std::has_single_bit(own));
  for (int level = 0; level < std::countr_zero(own); ++level) {
    const std::string away = fmt::format("grad{}/", level + 1);
    const ir::Graph& sums = train_program().graph();
    levels_.push_back({.put_away = finish(make_move_graph(sums, kGradientSum, away), Purpose::step),
                       .add = finish(make_move_graph(sums, away, kGradientSum), Purpose::step)});
  }
}

void Engine::join(comm::Transport& team) {
  HEARTH_CHECK(team.size() == options_.num_workers && update_ != nullptr);
  team_ = &team;
  own_losses_.resize(static_cast<size_t>(share().count));
}

data::LoaderShare Engine::share() const {
  const int64_t count = options_.accumulate / options_.num_workers;
  return {
      .group = options_.accumulate, .first = team_ == nullptr ? 0 : team_->rank() * count, .count = count};
}

void Engine::finish_shard(int64_t number) {
  size_t level = 0;
  for (; (number >> level & 1) != 0; ++level) levels_[level].add->start(threads_);
  if (number + 1 < num_own_shards()) levels_[level].put_away->start(threads_);
}

std::vector<std::span<float>> Engine::gradient_sums() const {
  std::vector<const exec::PersistentBuffer*> sums;
  for (const exec::PersistentBuffer& buffer : layout_.buffers()) {
    if (buffer.name.starts_with(kGradientSum)) sums.push_back(&buffer);
  }
  std::ranges::sort(sums, {}, &exec::PersistentBuffer::offset);
  // Neighbours travel together, with the zeros between them.
  constexpr int64_t kGap = 64;
  std::vector<std::span<float>> spans;
  for (const exec::PersistentBuffer* sum : sums) {
    auto* const first = reinterpret_cast<float*>(data(*sum));
    float* const end = first + sum->type.shape.num_elements();
    const bool joins = !spans.empty() && first - (spans.back().data() + spans.back().size()) < kGap;
    if (joins) {
      spans.back() = {spans.back().data(), end};
    } else {
      spans.emplace_back(first, end);
    }
  }
  return spans;
}

double Engine::exchange(int64_t step, float* losses) {
  if (card_) card_->wait();
  const auto start = std::chrono::steady_clock::now();
  int64_t index = 0;
  for (const std::span<float> sums : gradient_sums()) {
    team_->set_place({.step = step, .index = index++});
    team_->all_reduce(sums, DType::f32);
  }
  team_->set_place({.step = step, .index = index});
  const data::LoaderShare own = share();
  std::copy_n(losses + own.first, own.count, own_losses_.begin());
  team_->all_gather(std::as_bytes(std::span(own_losses_)),
                    std::as_writable_bytes(std::span(losses, static_cast<size_t>(own.group))));
  to_card();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace hearth::train
