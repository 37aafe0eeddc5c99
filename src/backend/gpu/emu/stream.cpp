#include "backend/gpu/emu/stream.h"

namespace hearth::emu {

std::vector<CardSettings>& cards() {
  static std::vector<CardSettings> all(1);
  return all;
}

void Stream::launch(const Grid& grid, std::function<void()> kernel) {
  enqueue([this, grid, kernel = std::move(kernel)] {
    const int64_t number = card_.num_launches++;
    if (number == card_.settings.hanging_launch) card_.hangs = true;
    if (card_.hangs) return;
    if (number == card_.settings.faulty_launch) throw Fault("the card was told to fail at this launch");
    run(grid, kernel);
  });
}

void Stream::run_until(uint64_t end) {
  while (first_ < end && !queue_.empty() && !card_.hangs) {
    const Work work = std::move(queue_.front());
    queue_.pop_front();
    ++first_;
    work();
  }
}

}  // namespace hearth::emu
