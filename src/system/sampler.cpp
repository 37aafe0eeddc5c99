// Before each access, the reader process writes the index of the GPU and sensor to shared memory
// (ReaderState). If it hangs beyond the timeout or crashes, this identifies the sensor at fault, which is
// disabled, and a new reader process continues with the others.
#include "system/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace hearth::system {
namespace {

/// Number of consecutive impossible values after which a sensor is disabled. A single one may be caused by a
/// busy bus.
constexpr int kMaxImpossibleReadings = 3;

/// Returns a message about an error count when it first grows, and then each time it has doubled; otherwise
/// an empty string.
std::string growth(int64_t count, int64_t& first, int64_t& said, std::string_view what,
                   std::string_view gpu) {
  if (count < 0) return "";
  if (first < 0 || count < first) {
    first = count;
    said = 0;
  }
  const int64_t grown = count - first;
  if (grown == 0 || grown < 2 * said) return "";
  said = grown;
  return fmt::format("GPU {}: {} {}{} since monitoring started", gpu, grown, what, grown == 1 ? "" : "s");
}

}  // namespace

struct Sampler::ReaderState {
  std::atomic<uint32_t> gpu, sensor;
};

Sampler::Sampler(SamplerOptions options, std::function<void(const std::string&)> say)
    : options_(std::move(options)), say_(std::move(say)), mark_(sizeof(ReaderState)) {}

Sampler::ReaderState& Sampler::mark() const { return *reinterpret_cast<ReaderState*>(mark_.data()); }

void Sampler::watch(const std::vector<std::string>& pci_addresses) {
  const auto same = [](const Gpu& gpu, const std::string& address) { return gpu.address == address; };
  if (std::ranges::equal(gpus_, pci_addresses, same)) return;
  gpus_.clear();
  for (const std::string& address : pci_addresses) gpus_.push_back({.address = address});
  disabled_sensors_.assign(gpus_.size(), 0);
  readings_.clear();
  process_ = std::make_unique<IsolatedProcess>([this](std::string_view request) { return answer(request); });
  next_ = Clock::now();
  gave_up_ = false;
}

/// Handles a request in the reader process: reads all enabled sensors and returns the samples as bytes.
std::string Sampler::answer(std::string_view request) {
  if (!sensors_) {
    std::vector<std::string> addresses;
    for (const Gpu& gpu : gpus_) addresses.push_back(gpu.address);
    sensors_.emplace(options_.root, addresses, options_.nvml);
  }
  std::vector<uint32_t> left_out(gpus_.size());
  HEARTH_CHECK(request.size() == left_out.size() * sizeof(uint32_t));
  std::memcpy(left_out.data(), request.data(), request.size());
  const std::vector<GpuSample> samples = sensors_->read(left_out, [&](size_t gpu, Sensor sensor) {
    mark().gpu = static_cast<uint32_t>(gpu);
    mark().sensor = static_cast<uint32_t>(sensor);
  });
  return {reinterpret_cast<const char*>(samples.data()), samples.size() * sizeof(GpuSample)};
}

bool Sampler::look() {
  if (process_ == nullptr || gpus_.empty() || gave_up_) return false;
  switch (process_->look()) {
    case IsolatedProcess::State::waiting:
      return false;
    case IsolatedProcess::State::answered:
      take();
      return true;
    case IsolatedProcess::State::lost:
      handle_lost_reader();
      return false;
    case IsolatedProcess::State::idle:
      if (Clock::now() >= next_) start();
      return false;
  }
  return false;
}

void Sampler::start() {
  next_ = Clock::now() +
          std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.seconds));
  mark().sensor = kNumSensors;
  try {
    process_->send({reinterpret_cast<const char*>(disabled_sensors_.data()),
                    disabled_sensors_.size() * sizeof(uint32_t)},
                   options_.timeout_seconds);
  } catch (const UserError& error) {
    give_up(error.what());
  }
}

void Sampler::give_up(const std::string& why) {
  gave_up_ = true;
  readings_.clear();
  say_(fmt::format("GPU sensors are not read: {}", why));
}

void Sampler::take() {
  const std::string bytes = process_->take();
  HEARTH_CHECK(bytes.size() == gpus_.size() * sizeof(GpuSample));
  readings_.resize(gpus_.size());
  for (size_t i = 0; i < gpus_.size(); ++i) {
    GpuSample sample;
    std::memcpy(&sample, bytes.data() + i * sizeof(sample), sizeof(sample));
    readings_[i] = sample.reading;
    judge(i, sample);
  }
}

void Sampler::judge(size_t gpu, const GpuSample& sample) {
  Gpu& known = gpus_[gpu];
  for (size_t k = 0; k < kNumSensors; ++k) {
    const float impossible = sample.impossible_values[k];
    known.num_impossible[k] = std::isnan(impossible) ? 0 : known.num_impossible[k] + 1;
    if (known.num_impossible[k] == kMaxImpossibleReadings)
      disable(gpu, static_cast<Sensor>(k), fmt::format("it reports an impossible value, {:.4g}", impossible));
  }
  for (const std::string& text : {growth(sample.reading.pcie_errors, known.first_pcie_errors,
                                         known.reported_pcie_errors, "PCIe error", known.address),
                                  growth(sample.reading.memory_errors, known.first_memory_errors,
                                         known.reported_memory_errors, "memory error", known.address)})
    if (!text.empty()) say_(text);
}

/// Called when the reader process has hung or crashed: disables the sensor that it was reading, and starts a
/// new process.
void Sampler::handle_lost_reader() {
  const size_t gpu = mark().gpu, sensor = mark().sensor;
  const bool is_known =
      sensor < kNumSensors && (disabled_sensors_[gpu] & bit(static_cast<Sensor>(sensor))) == 0;
  if (!is_known) return give_up("the search for sensors does not respond");
  disable(gpu, static_cast<Sensor>(sensor), "it does not respond");
  process_ = std::make_unique<IsolatedProcess>([this](std::string_view request) { return answer(request); });
}

void Sampler::disable(size_t gpu, Sensor sensor, const std::string& why) {
  disabled_sensors_[gpu] |= bit(sensor);
  say_(fmt::format("disabled a sensor, {} of GPU {}: {}", kSensorNames.at(static_cast<size_t>(sensor)),
                   gpus_[gpu].address, why));
}

}  // namespace hearth::system
