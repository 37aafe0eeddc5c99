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
  int64_t num_bytes = 0;
  for (const exec::PersistentBuffer& buffer : layout_.buffers()) {
    if (!buffer.name.starts_with(kGradientSum)) continue;
    sums_.push_back(&buffer);
    num_bytes += buffer.type.num_bytes();
  }
  std::ranges::sort(sums_, {}, &exec::PersistentBuffer::offset);
  if (card_) exchanged_ = std::make_unique<gpu::HostMemory>(card_->device(), num_bytes);
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

int64_t Engine::sum_in_place(int64_t step) {
  // Neighbours travel together, with the zeros between them.
  constexpr int64_t kGap = 64;
  int64_t num_exchanges = 0;
  for (size_t first = 0, end = 0; first < sums_.size(); first = end) {
    int64_t end_bytes = 0;
    for (end = first; end == first || (end < sums_.size() && sums_[end]->offset - end_bytes < kGap); ++end)
      end_bytes = sums_[end]->offset + sums_[end]->type.num_bytes();
    const auto count = static_cast<size_t>(end_bytes - sums_[first]->offset) / sizeof(float);
    team_->set_place({.step = step, .index = num_exchanges++});
    team_->all_reduce({reinterpret_cast<float*>(data(*sums_[first])), count}, DType::f32);
  }
  return num_exchanges;
}

int64_t Engine::sum_from_card(int64_t step) {
  auto* const sums = reinterpret_cast<float*>(exchanged_->data());
  float* end = sums;
  for (const exec::PersistentBuffer* sum : sums_) {
    card_->read(*sum, end, sum->type.num_bytes());
    end += sum->type.shape.num_elements();
  }
  card_->wait();
  team_->set_place({.step = step, .index = 0});
  team_->all_reduce({sums, end}, DType::f32);
  const float* from = sums;
  for (const exec::PersistentBuffer* sum : sums_) {
    card_->write(*sum, from, sum->type.num_bytes());
    from += sum->type.shape.num_elements();
  }
  return 1;
}

double Engine::exchange(int64_t step, float* losses) {
  if (card_) card_->wait();
  const auto start = std::chrono::steady_clock::now();
  const int64_t num_exchanges = card_ ? sum_from_card(step) : sum_in_place(step);
  team_->set_place({.step = step, .index = num_exchanges});
  const data::LoaderShare own = share();
  std::copy_n(losses + own.first, own.count, own_losses_.begin());
  team_->all_gather(std::as_bytes(std::span(own_losses_)),
                    std::as_writable_bytes(std::span(losses, static_cast<size_t>(own.group))));
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace hearth::train
