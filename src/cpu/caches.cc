#include "caches.h"

#include <unistd.h>
#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace needle {
namespace {

constexpr Caches kCommon{64, 32 << 10, 8, 512 << 10};

#if defined(__APPLE__)
std::int64_t reported(const char* name, std::int64_t otherwise) {
  std::int64_t value = 0;
  std::size_t size = sizeof value;
  return sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value > 0 ? value : otherwise;
}

Caches read_caches() {
  return {reported("hw.cachelinesize", kCommon.line), reported("hw.l1dcachesize", kCommon.l1),
          kCommon.l1_ways, reported("hw.l2cachesize", kCommon.l2)};
}
#elif defined(_SC_LEVEL1_DCACHE_SIZE)  // glibc: from the processor or from /sys
std::int64_t reported(int name, std::int64_t otherwise) {
  const std::int64_t value = sysconf(name);
  return value > 0 ? value : otherwise;
}

Caches read_caches() {
  return {reported(_SC_LEVEL1_DCACHE_LINESIZE, kCommon.line),
          reported(_SC_LEVEL1_DCACHE_SIZE, kCommon.l1),
          reported(_SC_LEVEL1_DCACHE_ASSOC, kCommon.l1_ways),
          reported(_SC_LEVEL2_CACHE_SIZE, kCommon.l2)};
}
#else
Caches read_caches() { return kCommon; }
#endif

}  // namespace

const Caches& caches() {
  static const Caches known = read_caches();
  return known;
}

}  // namespace needle
