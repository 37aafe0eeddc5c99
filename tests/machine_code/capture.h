// Stream capture as strict as HIP 5.7.1: a stream joins a recording when it waits for an event of the
// recording; a wait for an event of the same stream is refused; and the stream that began the recording must
// wait for every joined stream before it ends the recording.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace capture {

/// Vector clock: for each stream, by its address, the number of its steps that are known to be done.
using Clock = std::map<const void*, int>;

struct Recording {
  std::vector<std::function<void()>> steps;
  std::map<const void*, Clock> known;  ///< vector clock of each stream that takes part
  bool ended = false;

  void add(const void* stream, std::function<void()> step) {
    steps.push_back(std::move(step));
    ++known[stream][stream];
  }
  /// True if `origin` has waited for the last step of every other stream of the recording.
  bool is_joined(const void* origin) {
    const Clock& last = known[origin];
    return std::ranges::all_of(known, [&](const auto& stream) {
      const auto own = stream.second.find(stream.first);
      if (own == stream.second.end() || stream.first == origin) return true;
      const auto seen = last.find(stream.first);
      return seen != last.end() && seen->second >= own->second;
    });
  }
};

struct Stream {
  std::shared_ptr<Recording> recording;

  /// Streams that joined a recording leave it when the stream that began it ends it.
  bool records() {
    if (recording && recording->ended) recording.reset();
    return recording != nullptr;
  }
};

struct Event {
  std::shared_ptr<Recording> recording;
  const void* stream = nullptr;
  Clock known;

  void record(Stream& from) {
    recording = from.records() ? from.recording : nullptr;
    stream = &from;
    if (recording) known = recording->known[&from];
  }
};

/// Makes `stream` wait for `event`. Returns false if HIP 5.7.1 refuses to record the wait.
inline bool wait(Stream& stream, const Event& event) {
  if (!event.recording || event.recording->ended) return true;
  if (event.stream == &stream) return false;
  stream.recording = event.recording;
  Clock& clock = stream.recording->known[&stream];
  for (const auto& [other, count] : event.known) clock[other] = std::max(clock[other], count);
  return true;
}

}  // namespace capture
