#include "base/shared_library.h"

#include <dlfcn.h>

#include <cstdlib>

namespace hearth {

SharedLibrary::SharedLibrary(const std::vector<std::string>& files, Symbols symbols) {
  const int scope = symbols == Symbols::offered ? RTLD_GLOBAL : RTLD_LOCAL;
  for (const std::string& file : files) {
    file_ = file;
    handle_ = dlopen(file.c_str(), RTLD_NOW | scope);
    if (handle_ != nullptr) return;
    const char* const said = dlerror();
    if (fault_.empty() && said != nullptr) fault_ = said;
  }
}

void* SharedLibrary::address(const char* name) const {
  return handle_ == nullptr ? nullptr : dlsym(handle_, name);
}

std::filesystem::path find_module(const std::string& name) {
  namespace fs = std::filesystem;
  const std::string file = "libhearth_" + name + ".so";
  std::error_code failed;
  if (const char* const told = std::getenv("HEARTH_MODULES"); told != nullptr && *told != '\0')
    return fs::exists(fs::path(told) / file, failed) ? fs::path(told) / file : fs::path();
  const fs::path here = fs::read_symlink("/proc/self/exe", failed).parent_path();
  for (const fs::path& folder : {here, here.parent_path() / "lib" / "hearth"}) {
    if (fs::exists(folder / file, failed)) return folder / file;
  }
  return {};
}

std::filesystem::path file_of(const void* function) {
  Dl_info found;
  return dladdr(function, &found) == 0 ? "" : found.dli_fname;
}

}  // namespace hearth
