#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "base/path.h"
#include "net/hub_listing.h"

// A listing of files, for several names; no chosen path may leave the folder of the cache.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hearth;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<net::HubFile> files;
  try {
    files = net::parse_hub_listing(text, "hf:a/b");
  } catch (const UserError&) {
  }
  const std::string own = files.empty() ? std::string(text.substr(0, 200)) : "hf:a/b/" + files[0].path;
  for (const std::string& name : {std::string("hf:a/b"), std::string("hf:datasets/a/b"), own}) {
    try {
      for (const net::HubFile& file : net::needed_files(net::parse_hub_name(name), files)) {
        const fs::path inner = fs::path("/cache") / file.path;
        if (!inner.lexically_normal().string().starts_with("/cache/") || file.num_bytes < 0) std::abort();
      }
    } catch (const UserError&) {
    }
  }
  return 0;
}
