// Stands in for libnvidia-ml.so.1: one GPU at 00000000:41:00.0 that is hot. FAKE_NVML=fail: it does not
// start; fail_power: one function fails; hang: one never returns.
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <unistd.h>

namespace {

bool wants(std::string_view what) {
  const char* const wish = std::getenv("FAKE_NVML");
  return wish != nullptr && wish == what;
}

constexpr int kNotFound = 6, kNotSupported = 3, kDriverNotLoaded = 9;
int the_device;

template <typename T>
int give(T value, T* out) {
  *out = value;
  return 0;
}

}  // namespace

extern "C" {

int nvmlInit_v2() { return wants("fail") ? kDriverNotLoaded : 0; }
const char* nvmlErrorString(int result) { return result == kDriverNotLoaded ? "Driver Not Loaded" : "?"; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** device) {
  if (std::strcmp(address, "0000:41:00.0") != 0) return kNotFound;
  return give<void*>(&the_device, device);
}
int nvmlDeviceGetTemperature(void* device, int sensor, unsigned* celsius) {
  if (device != &the_device || sensor != 0) return kNotSupported;
  return give(79U, celsius);
}
int nvmlDeviceGetTemperatureThreshold(void*, int threshold, unsigned* celsius) {
  constexpr unsigned kThresholds[] = {98, 95, 0, 87};
  return threshold == 2 ? kNotSupported : give(kThresholds[threshold], celsius);
}
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  while (wants("hang")) pause();
  return wants("fail_power") ? kNotSupported : give(301500U, milliwatts);
}
int nvmlDeviceGetEnforcedPowerLimit(void*, unsigned* milliwatts) { return give(350000U, milliwatts); }
int nvmlDeviceGetClockInfo(void*, int clock, unsigned* megahertz) {
  return give(clock == 0 ? 1980U : 10501U, megahertz);
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* reasons) {
  return give(0x1ULL | 0x4ULL | 0x20ULL, reasons);
}
int nvmlDeviceGetFanSpeed(void*, unsigned* percent) { return give(64U, percent); }
int nvmlDeviceGetMemoryInfo(void*, unsigned long long* memory) {
  memory[0] = 25769803776ULL;
  memory[1] = 5769803776ULL;
  memory[2] = 20000000000ULL;
  return 0;
}
int nvmlDeviceGetUtilizationRates(void*, unsigned* rates) {
  rates[0] = 97;
  rates[1] = 40;
  return 0;
}
int nvmlDeviceGetPcieReplayCounter(void*, unsigned* count) { return give(3U, count); }
int nvmlDeviceGetTotalEccErrors(void*, int kind, int since, unsigned long long* count) {
  return since == 0 ? give(kind == 0 ? 5ULL : 1ULL, count) : kNotSupported;
}
}
