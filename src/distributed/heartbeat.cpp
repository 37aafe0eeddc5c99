#include "distributed/heartbeat.h"

namespace hearth::distributed {

HeartbeatBoard::HeartbeatBoard(int size) : bytes_(kFirst + size * int64_t{sizeof(Heartbeat::Entry)}) {
  const int64_t now = Heartbeat::now_ns();
  for (int rank = 0; rank < size; ++rank) entry(rank).time_ns = now;
}

}  // namespace hearth::distributed
