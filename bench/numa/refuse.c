/* Preloaded into a server: the system call that places memory is forbidden, as in many containers. */
#include <errno.h>

long
mbind(void)
{
	errno = EPERM;
	return -1;
}
